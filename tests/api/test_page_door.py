"""What command and API do and refuse, the pages of operators do and refuse in the same words. Case 42 of the API."""

from __future__ import annotations

from dataclasses import dataclass
from html import unescape
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction

from billing.models import Invoice, PendingApproval, WriteOff
from tests.api.door import Door
from tests.api.test_two_doors import DO, REFUSE, an_approval, filled, send
from tests.web.house import House, signed_in

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Page:
    """The act of a page that means the same as the request of this name."""

    model: type[Invoice | PendingApproval]
    act: str
    why: str


REFUSING = {
    "a credit note without a reason": Page(Invoice, "credit_in_full", " "),
    "a write-off without a reason": Page(Invoice, "write_off", " "),
    "taking back what was not written off": Page(Invoice, "reverse_write_off", "paid"),
    "writing off what is paid": Page(Invoice, "write_off", "lost"),
    "a decision without a reason": Page(PendingApproval, "approve", " "),
    "a decision on what is issued": Page(PendingApproval, "approve", "fine"),
}
DOING = {
    "a write-off": Page(Invoice, "write_off", "lost"),
    "a write-off taken back": Page(Invoice, "reverse_write_off", "paid"),
}


def press(house: House, page: Page) -> str:
    """What the page says then."""
    row: Any = house.invoice if page.model is Invoice else an_approval(house)
    form = {"action": page.act, "why": page.why, "_selected_action": [row.pk], "confirmed": "yes"}
    path = f"/admin/billing/{page.model._meta.model_name}/"
    response = signed_in(house.op).post(path, form, follow=True)
    assert response.status_code == 200
    return unescape(response.content.decode())


@pytest.mark.parametrize("case", REFUSING)
def test_api_042_what_the_api_refuses_the_page_refuses_with_the_same_sentence(
    house: House, op: Door, case: str
) -> None:
    doors, fill = REFUSE[case], filled(house)
    for earlier in doors.before:
        call_command(*map(fill, earlier))
    refused = send(op, doors, fill)
    assert refused.problem == (409, "refused")
    assert refused.body["detail"] in press(house, REFUSING[case])
    assert not WriteOff.objects.exists()


def written_off() -> list[tuple[int, str, str]]:
    return list(WriteOff.objects.order_by("pk").values_list("amount", "reason", "undo_reason"))


@pytest.mark.parametrize("case", DOING)
def test_api_042_what_the_api_does_the_page_does(house: House, op: Door, case: str) -> None:
    doors, fill = DO[case], filled(house)
    for earlier in doors.before:
        call_command(*map(fill, earlier))
    with transaction.atomic():
        assert send(op, doors, fill).status == 201
        by_api = written_off()
        transaction.set_rollback(True)
    press(house, DOING[case])
    assert written_off() == by_api != []
