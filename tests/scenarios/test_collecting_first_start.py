"""The first start, in an account where others have been charging for years."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billing.models import GatewayAccount
from billing.payments import webhook_events
from billing.payments.gateways import stripe
from tests.builders import at
from tests.collecting import Scenario, a_scenario

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenario]:
    """An account with twelve charges of somebody else, one a minute, that are listed four at a time."""
    monkeypatch.setattr(stripe, "PAGE", 4)
    monkeypatch.setattr(webhook_events, "CHARGES_PER_SAVE", 4)
    with a_scenario() as scenario:
        other = scenario.stripe_customer("somebody else's")
        card = scenario.stripe.dashboard.save_card(other)
        for number in range(12):
            scenario.wait(minutes=1)
            scenario.gateway.charge(
                {
                    "amount": 999,
                    "currency": "usd",
                    "customer": other,
                    "payment_method": card,
                    "confirm": True,
                    "off_session": True,
                },
                key=f"another-deployment:{number}",
            )
        yield scenario


def lists(scenario: Scenario) -> list[dict[str, str]]:
    """The bounds of each list of charges that was asked for."""
    return [
        request.params["created"]
        for request in scenario.stripe.requests
        if str(request) == "GET /v1/payment_intents"
    ]


def test_only_what_can_be_ours_is_read(scenario: Scenario) -> None:
    """March's invoice is of 1 April: what was charged before 22 March, 29 days ago, is nothing of ours."""
    scenario.save_card()
    scenario.collect()
    assert {int(request["gte"]) for request in lists(scenario)} == {int(at("2026-03-22 09:12").timestamp())}
    assert scenario.paid == "4.00"
    assert scenario.stripe.violations == []


def test_an_old_invoice_is_looked_for_from_the_day_before_it(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.wait(days=60)
    scenario.collect()
    assert {int(request["gte"]) for request in lists(scenario)} == {int(at("2026-03-31 00:00").timestamp())}


def test_what_broke_off_goes_on_where_it_was_and_nothing_is_charged_before_it_is_done(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.stripe.faults.rate_limited("GET /v1/payment_intents", skip=2)
    scenario.collect()
    assert len(lists(scenario)) == 3
    assert scenario.paid == "0.00"
    reached = GatewayAccount.objects.get().charges_down_to
    assert reached == int(at("2026-04-20 09:05").timestamp())  # eight of twelve: 09:12 to 09:05

    scenario.collect()
    assert [request.get("lte") for request in lists(scenario)[3:]] == [str(reached), str(reached)]
    gateway_account = GatewayAccount.objects.get()
    assert (scenario.paid, gateway_account.charges_begun, gateway_account.charges_down_to) == (
        "4.00",
        None,
        None,
    )
    before = len(lists(scenario))
    scenario.wait(minutes=1)
    scenario.collect()
    assert len(lists(scenario)) == before
    assert scenario.stripe.violations == []


def test_what_broke_off_a_month_ago_begins_anew(scenario: Scenario) -> None:
    """Of what was charged since, events tell no more."""
    scenario.save_card()
    scenario.stripe.faults.rate_limited("GET /v1/payment_intents", skip=2)
    scenario.collect()
    scenario.wait(days=30)
    scenario.collect()
    assert "lte" not in lists(scenario)[3]
    assert scenario.paid == "4.00"
