"""Ann's script pays an invoice with the saved card. Cases 28 to 30 and 37 of the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billing.models import Payment, PaymentAttempt
from portal.api import idempotency
from portal.api.models import IdempotentRequest
from portal.core.tenants.models import Role
from tests import builders
from tests.api.door import Door, door
from tests.builders import at
from tests.collecting import Scenario, a_scenario
from tests.web.clock import stand_at

pytestmark = pytest.mark.django_db(transaction=True)

GOOD, NO_FUNDS, ASKS = "4242424242424242", "4000000000009995", "4000002760003184"


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenario]:
    stand_at(monkeypatch, "2026-04-15 10:00", of="portal.api.views")
    with a_scenario(now=at("2026-04-15 10:00")) as scenario:
        yield scenario
        assert scenario.stripe.violations == []


@pytest.fixture
def ann(scenario: Scenario) -> Door:
    owner = builders.a_person("ann@vision.example", scenario.lab, Role.OWNER)
    return door(owner, scenario.lab, moment=at("2026-04-01"))


def path(scenario: Scenario) -> str:
    return f"/invoices/{scenario.invoice.number}/payments"


def test_api_037_an_invoice_is_paid_with_the_saved_card_once(scenario: Scenario, ann: Door) -> None:
    scenario.save_card(GOOD)
    expected = {"expected": {"amount": "4.00", "currency": "USD"}}
    first = ann.post(path(scenario), expected, key="pay-1")
    assert first.status == 201, first.raw
    assert (first.body["state"], first.body["amount"]) == ("succeeded", {"amount": "4.00", "currency": "USD"})
    assert first.body["confirm_url"] is None
    again = ann.post(path(scenario), expected, key="pay-1")
    assert (again.raw, again.headers["Idempotent-Replayed"]) == (first.raw, "true")
    assert Payment.objects.count() == PaymentAttempt.objects.count() == 1
    assert ann.reads(f"/invoices/{scenario.invoice.number}")["settlement"] == "paid"
    assert ann.post(path(scenario), key="pay-2").problem == (409, "refused")


def test_api_028_money_moves_only_under_a_key(scenario: Scenario, ann: Door) -> None:
    scenario.save_card(GOOD)
    assert ann.post(path(scenario)).problem == (400, "invalid-request")
    assert not PaymentAttempt.objects.exists()


def test_api_037_a_card_that_is_refused_pays_nothing(scenario: Scenario, ann: Door) -> None:
    scenario.save_card(NO_FUNDS)
    refused = ann.post(path(scenario), key="a")
    assert refused.problem == (409, "card-refused")
    assert b"4000" not in refused.raw
    assert ann.post(path(scenario), key="a").headers["Idempotent-Replayed"] == "true"
    assert not Payment.objects.exists()


def test_api_037_the_banks_page_is_told_where_it_asks(scenario: Scenario, ann: Door) -> None:
    scenario.save_card(ASKS)
    answer = ann.post(path(scenario), key="a")
    assert (answer.status, answer.body["state"]) == (201, "needs_action")
    assert answer.body["confirm_url"].startswith("http")


def test_api_037_without_a_card_or_above_what_is_expected_nothing_is_charged(
    scenario: Scenario, ann: Door
) -> None:
    assert ann.post(path(scenario), key="a").problem == (409, "refused")
    scenario.save_card(GOOD)
    less = {"expected": {"amount": "3.99", "currency": "USD"}}
    assert ann.post(path(scenario), less, key="b").problem == (409, "refused")
    other = {"expected": {"amount": "4.00", "currency": "EUR"}}
    assert ann.post(path(scenario), other, key="c").problem == (400, "invalid-request")
    for amount in (4, "4.001", "x"):
        wrong = {"expected": {"amount": amount, "currency": "USD"}}
        assert ann.post(path(scenario), wrong, key=f"d{amount}").problem == (400, "invalid-request")
    assert not PaymentAttempt.objects.exists()


def test_api_030_a_process_that_died_beside_its_call_is_taken_over(scenario: Scenario, ann: Door) -> None:
    """The row says under way; after a minute the same request works again, by the same attempt."""
    scenario.save_card(GOOD)
    first = ann.post(path(scenario), key="a")
    row = IdempotentRequest.objects.get()
    IdempotentRequest.objects.update(status=idempotency.UNDER_WAY, body=b"", created_at=scenario.now)
    waiting = ann.post(path(scenario), key="a")
    assert (waiting.problem, waiting.headers["Retry-After"]) == ((409, "in-progress"), "1")
    IdempotentRequest.objects.update(created_at=scenario.now - idempotency.PATIENCE)
    assert ann.post(path(scenario), key="a").raw == first.raw
    assert PaymentAttempt.objects.count() == 1
    assert IdempotentRequest.objects.get().status == row.status == 201


def test_api_030_where_the_gateway_is_silent_the_same_key_goes_on(
    scenario: Scenario, ann: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    from billing.payments import on_demand
    from billing.payments.gateways.base import CallOutcome, GatewayError

    scenario.save_card(GOOD)

    def silent(**_: object) -> None:
        raise GatewayError("no answer", CallOutcome.UNKNOWN)

    with monkeypatch.context() as patch:
        patch.setattr(on_demand, "pay_invoice", silent)
        assert ann.post(path(scenario), key="a").problem == (503, "gateway-silent")
    assert not IdempotentRequest.objects.exists()
    assert ann.post(path(scenario), key="a").body["state"] == "succeeded"


def test_api_019_only_who_may_pay_for_the_tenant_pays(scenario: Scenario, ann: Door) -> None:
    scenario.save_card(GOOD)
    reader = door(builders.a_person("ben@vision.example", scenario.lab, Role.MEMBER), scenario.lab)
    assert reader.post(path(scenario), key="a").problem == (403, "missing-scope")
    assert door(builders.an_operator(), None).post(path(scenario), key="a").problem == (403, "missing-scope")
    other_lab = builders.a_tenant("other")
    eve = door(builders.a_person("eve@other.example", other_lab, Role.OWNER), other_lab)
    assert eve.post(path(scenario), key="a").problem == (404, "not-found")
    assert not PaymentAttempt.objects.exists()
