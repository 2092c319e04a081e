"""What is open is paid where Ann sees it first: with her saved card by one click, or on the page of Stripe."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.test import Client

from portal.core.tenants.models import Role
from tests import builders
from tests.collecting import Scenario, a_scenario
from tests.scenarios.test_dunning_endures import copies
from tests.web.clock import stand_at
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)

OVERVIEW = "/t/vision-lab/"
GOOD = "4242424242424242"


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenario]:
    for module in ("portal.web.access_decorators", "portal.web.payment", "portal.web.saved_card"):
        stand_at(monkeypatch, "2026-04-15 10:00", of=module)
    with a_scenario(now=builders.at("2026-04-15 10:00")) as scenario:
        yield scenario
        assert scenario.stripe.violations == []


@pytest.fixture
def ann(scenario: Scenario) -> Client:
    return signed_in(builders.a_person("ann@vision.example", scenario.lab, Role.OWNER))


def shown(client: Client) -> str:
    return client.get(OVERVIEW).content.decode()


def form(html: str) -> tuple[str, dict[str, str]]:
    """Where the only form of the tiles goes, and what it sends."""
    (tile,) = re.findall(r'<div class="ct-pay.*?</div>', html, re.DOTALL)
    (action,) = re.findall(r'<form method="post" action="([^"]+)"', tile)
    return action, dict(re.findall(r'name="(key|seen)" value="([^"]*)"', tile))


def test_the_one_open_invoice_is_paid_with_the_saved_card(scenario: Scenario, ann: Client) -> None:
    scenario.save_card(GOOD)
    html = shown(ann)
    assert "Pay $4.00 with Visa ending in 4242 Sandbox: no money moves." in words(html)
    action, values = form(html)
    for _ in range(2):
        ann.post(action, values)
    assert scenario.charged == [400]
    text = words(shown(ann))
    assert "Open invoices None everything is paid" in text
    assert "Pay $" not in text
    scenario.books_agree()


def test_all_that_are_open_are_paid_by_one_click_and_no_more_than_was_shown(
    scenario: Scenario, ann: Client
) -> None:
    copies(2)
    scenario.save_card(GOOD)
    html = shown(ann)
    assert "Open invoices $12.00 3 to pay" in words(html)
    assert "Pay all with Visa ending in 4242" in words(html)
    action, values = form(html)
    assert values["seen"] == "USD=1200"
    ann.post(action, values | {"seen": "USD=800"})
    assert scenario.charged == []
    ann.post(action, values)
    assert scenario.charged == [400] * 3
    scenario.books_agree()


def test_without_a_saved_card_the_page_of_stripe_opens_for_the_one_invoice(
    scenario: Scenario, ann: Client
) -> None:
    html = shown(ann)
    assert "Pay by card Sandbox: no money moves." in words(html)
    action, values = form(html)
    assert (action, values) == ("/t/vision-lab/invoices/INV-2026-0001/pay/", {})
    assert ann.post(action).status_code == 303
    assert len(scenario.stripe.objects("checkout.session")) == 1


def test_without_a_saved_card_one_of_several_is_chosen_first(scenario: Scenario, ann: Client) -> None:
    copies(2)
    html = shown(ann)
    assert 'href="/t/vision-lab/invoices/">Choose an invoice to pay' in html
    assert 'method="post" action="/t/vision-lab/invoices/' not in html
    assert "For your bookkeeping" in (listed := ann.get("/t/vision-lab/invoices/").content.decode())
    assert "Pay all with" not in listed


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER])
def test_who_may_not_pay_sees_the_amounts_that_they_may_see(scenario: Scenario, role: Role) -> None:
    scenario.save_card(GOOD)
    text = words(shown(signed_in(builders.a_person("vic@vision.example", scenario.lab, role))))
    assert "Pay $" not in text
    assert ("Open invoices $4.00 1 to pay" in text) == (role == Role.VIEWER)
