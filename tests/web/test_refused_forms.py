"""Ann mistypes one field of a form: the page that refuses it shows all that she typed, and once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from portal.core.tenants.models import Membership, Project
from tests import sharing
from tests.web import forms
from tests.web.house import House, a_house, signed_in

pytestmark = pytest.mark.django_db

LAB = "/t/vision-lab/"
WEBHOOK = {
    "name": "finance",
    "url": "https://no-such-host.invalid/hook",
    "event_types": ["invoice.issued", "invoice.paid"],
}
KEY = {
    "name": "Finance export",
    "scopes": ["invoices:read", "usage:read"],
    "project": "asr",
    "expires_on": "2020-01-31",
    "is_service": "on",
}
REFUSED = [
    ("webhooks/", "webhooks/change/", "create", WEBHOOK),
    ("webhooks/", "webhooks/change/", "create", WEBHOOK | {"name": "f" * 61}),
    ("api-keys/", "api-keys/change/", "create", KEY),
    ("api-keys/", "api-keys/change/", "create", KEY | {"scopes": []}),
    ("team/", "team/change/", "invite", {"email": "dan at vision", "role": "billing"}),
    ("plan/change/", "plan/choose/", "leave", {"leaves_on": "2020-01-01", "reason": "We move to Bonn."}),
    (
        "billing/",
        "billing/change/",
        "contact",
        {"email": "bills at vision", "reminders": "on", "budgets": "on"},
    ),
]


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, "https://tab.example"


def _fields(html: str) -> dict[str, list[str]]:
    return {name: values for name, values in forms.fields(html).items() if name != "csrfmiddlewaretoken"}


@pytest.mark.parametrize(("page", "change", "act", "typed"), REFUSED)
def test_what_ann_typed_is_in_the_page_that_refuses_it(
    house: House, page: str, change: str, act: str, typed: dict[str, Any]
) -> None:
    Project.objects.get_or_create(tenant=house.vision, name="asr")
    ann = signed_in(house.ann)
    untouched = _fields(ann.get(LAB + page).text)
    refused = ann.post(LAB + change, {"act": act, **typed}, follow=True)
    assert refused.redirect_chain == [(LAB + page, 302)]
    assert "alert-danger" in refused.text
    fields = _fields(refused.text)
    for name, value in typed.items():
        values = fields.get(name, [])
        assert {*values} == {*value} if isinstance(value, list) else values[-1] == value, name
    assert not {"invoices"} & {*fields}  # a box that is ticked by default, and was not by her
    assert _fields(ann.get(LAB + page).text) == untouched


def test_what_ann_typed_as_names_of_ben_stays_in_his_row_alone(house: House) -> None:
    ann, ben = signed_in(house.ann), Membership.objects.get(tenant=house.vision, user=house.ben)
    names = ", ".join(f"ben-{number}" for number in range(200))
    refused = ann.post(LAB + "team/change/", {"act": "users", "member": ben.pk, "users": names}, follow=True)
    assert refused.text.count(names) == 1
    assert (
        f'value="{names}" autocomplete="off" placeholder="ann, ann-dev" aria-label="User names of ben@'
        in refused.text
    )
    ben.refresh_from_db()
    assert ben.scheduler_users == []


def test_a_password_in_an_address_is_not_shown_again(house: House) -> None:
    ann = signed_in(house.ann)
    address = "https://ann:hunter2@hooks.example.org/"
    typed = WEBHOOK | {"url": address}
    refused = ann.post(LAB + "webhooks/change/", {"act": "create", **typed}, follow=True)
    assert 'value="finance"' in refused.text
    assert "hunter2" not in refused.text


def test_op_finds_what_she_typed_on_her_own_pages_too(house: House) -> None:
    op = signed_in(house.op)
    team = op.post(
        "/operator/tenants/vision-lab/team/",
        {"act": "invite", "email": "dan at", "role": "owner"},
        follow=True,
    )
    assert forms.fields(team.text)["email"] == ["dan at"]
    key = op.post("/operator/api-keys/", {"act": "create", "name": "Nightly", "scopes": []}, follow=True)
    assert forms.fields(key.text)["name"] == ["Nightly"]
    hook = op.post("/operator/webhooks/", {"act": "create", **WEBHOOK}, follow=True)
    assert forms.fields(hook.text)["name"] == ["finance"]
