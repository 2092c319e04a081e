"""What Stripe told of and cannot be applied: it holds its own tenant, is tried again, and is lost to nobody."""

from __future__ import annotations

from uuid import uuid4

import pytest

from billing.models import GatewayEvent, PaymentAttempt, PaymentDispute, SavedMethod, Wallet, WalletScope
from billing.payments import (
    automatic,
    charge_attempts,
    checkout_sessions,
    customers,
    gateway_access,
    manual_review,
    webhook_events,
)
from billing.payments.gateway_access import CollectionError
from billing.wallets import wallet_terms
from tests.builders import at
from tests.collecting import Scenario
from tests.tiers import whole_or

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


AN_HOUR = 62  # rounds, one a minute: more than an event is tried before people look at it


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> int:
    """An hour of them; by default a third, and an event is tried a third as often."""
    rounds = whole_or(22, AN_HOUR)
    monkeypatch.setattr(webhook_events, "TRIES", rounds - 2)
    return rounds


def collect_each_minute(scenario: Scenario, rounds: int = AN_HOUR) -> None:
    for _ in range(rounds):
        scenario.wait(minutes=1)
        scenario.collect()


def in_review() -> list[tuple[str, str]]:
    rows = GatewayEvent.objects.filter(state="review").order_by("object_kind")
    return list(rows.values_list("object_kind", "tenant_slug"))


def a_dispute_that_cannot_be_read(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    scenario.stripe.dashboard.dispute(PaymentAttempt.objects.get().external_id or "")


@pytest.mark.swept
def test_an_hour_without_stripe_parks_nothing_and_what_it_told_of_is_applied_after_it(
    scenario: Scenario, rounds: int
) -> None:
    a_dispute_that_cannot_be_read(scenario)
    scenario.stripe.faults.cut_before("GET /v1/disputes*", times=rounds)
    collect_each_minute(scenario, rounds)
    assert in_review() == []
    assert scenario.settlement == "paid"
    scenario.wait(minutes=1)
    scenario.collect()
    assert (PaymentDispute.objects.count(), scenario.settlement) == (1, "disputed")


@pytest.mark.swept
def test_what_stripe_cannot_say_for_an_hour_is_parked_and_tried_again_each_hour(
    scenario: Scenario, rounds: int
) -> None:
    a_dispute_that_cannot_be_read(scenario)
    broken = scenario.stripe.faults.server_error("GET /v1/disputes*", times=10_000)
    collect_each_minute(scenario, rounds)
    assert in_review() == [("dispute", "")]
    scenario.stripe.faults.lift(broken)
    scenario.wait(minutes=30)
    scenario.collect()
    assert not PaymentDispute.objects.exists()
    scenario.wait(minutes=31)
    scenario.collect()
    assert (PaymentDispute.objects.count(), in_review(), scenario.settlement) == (1, [], "disputed")


@pytest.mark.peers  # takes long
def test_a_page_that_was_paid_and_cannot_be_read_for_an_hour_is_not_charged_beside_it(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "")
    broken = scenario.stripe.faults.server_error("GET /v1/payment_intents/*", times=10_000)
    collect_each_minute(scenario)
    assert scenario.charged == [400]
    assert in_review() == [("checkout.session", "vision-lab"), ("payment_intent", "vision-lab")]
    scenario.stripe.faults.lift(broken)
    collect_each_minute(scenario)
    assert (scenario.charged, scenario.states, scenario.paid, in_review()) == (
        [400],
        ["succeeded"],
        "4.00",
        [],
    )
    scenario.books_agree()


def test_what_nobody_can_reach_for_a_day_stops_others_no_longer(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_events, "TRIES_UNANSWERED", 3)
    scenario.save_card()
    page = checkout_sessions.open_card_page(
        tenant=scenario.lab, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "")
    scenario.stripe.faults.cut_before("GET /v1/checkout/sessions*", times=3)
    for _ in range(3):
        scenario.collect()
        assert scenario.charged == []
    assert in_review() == [("checkout.session", "vision-lab")]
    assert not webhook_events.is_behind(moment=scenario.now)


def charged_for_nothing_here(scenario: Scenario) -> None:
    """Stripe tells of 4.00 of the lab for an invoice that this database does not have."""
    params = {
        "amount": 400,
        "currency": "usd",
        "customer": customers.get_billing_account(scenario.lab).customer,
        "payment_method": SavedMethod.objects.get().external_id,
        "confirm": True,
        "off_session": True,
        "metadata": gateway_access.object_tags(
            tenant="vision-lab", kind="invoice", attempt=uuid4(), invoice=999, number="INV-2026-0999"
        ),
    }
    scenario.gateway.charge(params, key="before the backup was restored")


def test_a_charge_that_was_about_to_be_sent_is_not_sent_beside_money_that_belongs_to_nothing_yet(
    scenario: Scenario,
) -> None:
    """The worker dies between the two; the next round reads what needs review before it goes on with the charge."""
    scenario.save_card()
    customer = customers.get_billing_account(scenario.lab).customer or ""
    charge_attempts.prepare_attempt(
        invoice=scenario.invoice,
        customer=customer,
        moment=scenario.now,
        on=scenario.now.date(),
    )
    charged_for_nothing_here(scenario)
    scenario.collect()
    assert set(in_review()) == {("payment_intent", "vision-lab")}
    assert (scenario.states, scenario.charged, scenario.paid) == (
        ["canceled"],
        [400],
        "0.00",
    )
    for event in GatewayEvent.objects.filter(state="review"):
        manual_review.settle_event(event=event, who="op", reason="Given back by hand.", moment=scenario.now)
    scenario.wait(minutes=1)
    scenario.collect()
    assert (scenario.states, scenario.charged, scenario.paid) == (
        ["canceled", "succeeded"],
        [400, 400],
        "4.00",
    )


def test_an_automatic_top_up_that_was_about_to_be_sent_is_not_sent_beside_it_either(
    scenario: Scenario,
) -> None:
    wallet_terms.set_scheme(
        tenant=scenario.lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    scenario.save_card()
    scenario.collect()  # the invoice is paid
    scenario.wait(minutes=1)
    wallet = Wallet.objects.get()
    rule = automatic.set_rule(
        wallet=wallet, active=True, below=1000, amount=2000, most=9000, by="ann", moment=scenario.now
    )
    customer = customers.get_billing_account(scenario.lab).customer or ""
    assert automatic.prepare_top_up(rule=rule, customer=customer, moment=scenario.now) is not None
    charged_for_nothing_here(scenario)
    scenario.collect()
    assert in_review() == [("payment_intent", "vision-lab")]
    assert (scenario.states, scenario.charged) == (["succeeded", "canceled"], [400, 400])


@pytest.mark.swept
def test_op_has_what_is_parked_applied_again_without_waiting_for_its_hour(
    scenario: Scenario, rounds: int
) -> None:
    a_dispute_that_cannot_be_read(scenario)
    broken = scenario.stripe.faults.server_error("GET /v1/disputes*", times=10_000)
    collect_each_minute(scenario, rounds)
    scenario.stripe.faults.lift(broken)
    event = GatewayEvent.objects.get(state="review")
    manual_review.retry_event(event=event)
    manual_review.retry_event(event=event)
    scenario.collect()
    assert (PaymentDispute.objects.count(), in_review()) == (1, [])
    with pytest.raises(CollectionError, match="does not need review"):
        manual_review.retry_event(event=event)
