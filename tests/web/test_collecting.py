"""Op looks at what is late, what comes next, and what needs a person; and lets it rest."""

from __future__ import annotations

import pytest
from django.db import ProgrammingError, connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.dunning import dunning_run
from billing.emails import delivery
from billing.models import DunningPause, DunningPolicy, Invoice, Notice, SuspendedAccount, WriteOff
from billing.receivables import dunning_policies, pauses, write_offs
from portal.core.tenants.scope import tenant_scope
from tests.builders import at
from tests.scenarios.test_dunning_endures import copies
from tests.web.clock import stand_at
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PATH = "/operator/receivables/"


NOW = "2026-04-28 09:00"


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    """The vision lab's $13.00 and the speech lab's $1.25 were due eleven days ago, on 17 April."""
    stand_at(monkeypatch, NOW, of="portal.web.receivables")
    return a_house()


def post(client: Client, **fields: str) -> str:
    answer = client.post(PATH, {"tenant": "vision-lab", **fields}, follow=True)
    assert answer.status_code == 200
    return words(answer.content.decode())


def test_op_sees_who_owes_what_since_when_and_what_comes_next(house: House) -> None:
    dunning_run.run_dunning(moment=at(NOW))
    delivery.send_notices(moment=at(NOW))
    text = words(page(house.op, PATH))
    assert "Overdue (USD) $14.25 2 invoices of 2 tenants Suspended 0 tenants" in text
    assert "E-mail is not configured (EMAIL_URL): reminders are drafted but not sent" in text
    assert (
        "Vision Lab INV-2026-0002 17 Apr 2026 11 days Reminder 2 Reminder 3 8 May 2026 $13.00 Pause" in text
    )


def test_op_pauses_an_invoice_or_a_tenant_and_resumes(house: House) -> None:
    op, number = signed_in(house.op), house.invoice.number or ""
    assert f"{number}: dunning paused until you resume it." in post(
        op, act="pause", number=number, why="agreed"
    )
    row = DunningPause.objects.get()
    assert (row.invoice, row.by, row.reason, row.until) == (
        house.invoice,
        "op@cluster.example",
        "agreed",
        None,
    )
    assert "On hold Paused indefinitely by op@cluster.example: agreed" in words(page(house.op, PATH))
    assert f"{number}: dunning resumed." in post(op, act="resume", number=number)

    later = "2026-05-07"
    post(op, act="pause", number=number, all="yes", until=later, why="merging")
    assert "Resume all" in words(page(house.op, PATH))
    assert "All invoices of Vision Lab: dunning resumed." in post(op, act="resume", number=number, all="yes")
    assert DunningPause.objects.filter(ended_at=None).count() == 0


def test_what_cannot_be_meant_is_a_sentence_and_what_is_not_there_is_not_found(house: House) -> None:
    op, number = signed_in(house.op), house.invoice.number or ""
    assert "Say why" in post(op, act="pause", number=number, why=" ")
    assert "is not to come" in post(op, act="pause", number=number, why="x", until="2020-01-01")
    assert "'soon' is not a date" in post(op, act="pause", number=number, why="x", until="soon")
    assert op.post(PATH, {"tenant": "nobody", "act": "pause"}).status_code == 404
    assert op.post(PATH, {"tenant": "vision-lab", "number": "INV-9"}).status_code == 404
    speech = Invoice.objects.get(tenant=house.speech).number
    assert op.post(PATH, {"tenant": "vision-lab", "number": speech}).status_code == 404
    assert signed_in(house.ann).post(PATH, {"tenant": "vision-lab", "act": "pause"}).status_code == 404


def test_a_letter_that_could_not_be_sent_waits_for_a_person(house: House) -> None:
    house.vision.memberships.all().delete()
    dunning_run.run_dunning(moment=at(NOW))
    delivery.send_notices(moment=at(NOW))
    text = words(page(house.op, PATH))
    assert "Needs review 1 Items that need your decision" in text
    assert (
        "Reminder: There is nobody to write to: give the tenant a billing e-mail or an owner. Review" in text
    )


def test_nothing_late_is_said_so(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_at(monkeypatch, "2026-04-16 09:00", of="portal.web.receivables")
    assert "No overdue invoices" in page(house.op, PATH)


def test_many_late_invoices_are_told_page_by_page_with_as_many_queries(house: House) -> None:
    op = signed_in(house.op)
    op.get(PATH)
    with CaptureQueriesContext(connection) as few:
        op.get(PATH)
    copies(60)
    with CaptureQueriesContext(connection) as many:
        first = op.get(PATH).content.decode()
    assert len(many) <= len(few) <= 20
    assert first.count('data-label="Invoice"') == 50
    assert "More invoices" in first
    older = first.partition('href="?before=')[2].partition('"')[0].replace("&amp;", "&")
    second = op.get(f"{PATH}?before={older}").content.decode()
    assert second.count('data-label="Invoice"') == 50
    numbers = {text.partition("</a>")[0] for text in (first + second).split('/">COPY-')[1:]}
    assert len(numbers) == 98  # and the two that they were made of
    assert op.get(f"{PATH}?before=2026-99-99_1").status_code == 200


def test_a_page_of_a_tenant_sees_its_own_letters_and_never_which_accounts_are_blocked(house: House) -> None:
    dunning_run.run_dunning(moment=at(NOW))
    delivery.send_notices(moment=at(NOW))
    for tenant in (house.vision, house.speech):
        pauses.pause_dunning(
            tenant=tenant, invoice=None, until=None, reason="merging", by="op", moment=at(NOW)
        )
        invoice = Invoice.objects.get(tenant=tenant)
        write_offs.write_off_invoice(invoice=invoice, reason="insolvent", by="op", on=at(NOW).date())
        dunning_policies.set_policy(tenant=tenant, since=at(NOW).date(), receipts=True)
    own: tuple[type[Model], ...] = (Notice, DunningPause, WriteOff, DunningPolicy)
    for model in own:
        assert len(set(model._default_manager.values_list("tenant", flat=True))) == 2
        with tenant_scope(house.vision):
            assert set(model._default_manager.values_list("tenant", flat=True)) == {house.vision.pk}
    with pytest.raises(ProgrammingError, match="permission denied"), tenant_scope(house.vision):
        SuspendedAccount.objects.first()
