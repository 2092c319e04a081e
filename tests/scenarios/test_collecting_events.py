"""What Stripe tells of, and how: signed or forged, twice, late, out of order, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from billing.invoicing import voids
from billing.invoicing.voids import VoidError
from billing.models import BillingAccount, CheckoutSession, GatewayEvent, Payment, PaymentAttempt
from billing.payments import charge_attempts, checkout_sessions, manual_review
from billing.payments.gateway_access import CollectionError
from billing.receivables import settlement
from billing.rules.money import Money
from tests.collecting import Scenario, a_scenario
from tests.owner import as_owner
from tests.stripe_notifications import applied, notifications, post_to_hook

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


FORGET = (
    "TRUNCATE billing_movedmoney, billing_gatewayevent CASCADE",
    "ALTER TABLE billing_payment DISABLE TRIGGER USER",
    "DELETE FROM billing_payment",
    "ALTER TABLE billing_payment ENABLE TRIGGER USER",
    "ALTER TABLE billing_paymentattempt DISABLE TRIGGER USER",
    "DELETE FROM billing_paymentattempt",
    "ALTER TABLE billing_paymentattempt ENABLE TRIGGER USER",
    "UPDATE billing_gatewayaccount SET events_through = 0",
)
"""What a backup from before the charge does not know."""


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        yield scenario


def a_page(scenario: Scenario) -> CheckoutSession:
    return checkout_sessions.open_payment_page(
        invoice=scenario.invoice,
        gateway=scenario.gateway,
        back=BACK,
        who="ann@vision.example",
        moment=scenario.now,
    )


def test_case_072_and_collecting_case_16_a_notification_that_comes_twice_has_one_effect(
    scenario: Scenario,
) -> None:
    scenario.stripe.dashboard.pay(a_page(scenario).external_id or "")
    for body, headers in notifications(scenario):
        assert (post_to_hook(body, headers), post_to_hook(body, headers)) == (200, 200)
    applied(scenario)
    applied(scenario)
    assert (scenario.paid, Payment.objects.count(), scenario.states) == ("4.00", 1, ["succeeded"])
    scenario.books_agree()


def test_case_072_and_collecting_case_17_the_order_of_what_is_told_does_not_matter(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.charge()
    intent = PaymentAttempt.objects.get().external_id or ""
    scenario.stripe.dashboard.refund(intent, 150)
    for body, headers in reversed(notifications(scenario)):
        assert post_to_hook(body, headers) == 200
        applied(scenario)
    assert (scenario.paid, scenario.states) == ("2.50", ["succeeded"])
    scenario.books_agree()


def test_collecting_case_19_two_secrets_hold_while_one_is_replaced(scenario: Scenario, settings: Any) -> None:
    settings.STRIPE_WEBHOOK_SECRETS = ["whsec_the_new_one", "whsec_of_the_tests"]
    scenario.stripe.dashboard.pay(a_page(scenario).external_id or "")
    assert {post_to_hook(*message) for message in notifications(scenario)} == {200}
    settings.STRIPE_WEBHOOK_SECRETS = ["whsec_the_new_one"]
    scenario.stripe.dashboard.refund(scenario.stripe.objects("payment_intent")[0]["id"], 100)
    assert {post_to_hook(*message) for message in notifications(scenario)} == {400}


def test_collecting_case_20_without_any_notification_the_next_round_finds_out(
    scenario: Scenario,
) -> None:
    scenario.stripe.dashboard.pay(a_page(scenario).external_id or "")
    assert scenario.paid == "0.00"
    scenario.wait(days=2)
    scenario.collect()
    assert (scenario.paid, scenario.states) == ("4.00", ["succeeded"])
    scenario.books_agree()


def test_collecting_case_14_a_page_that_nobody_used_closes_and_another_can_be_opened(
    scenario: Scenario,
) -> None:
    first = a_page(scenario)
    scenario.wait(hours=25)
    scenario.collect()
    first.refresh_from_db()
    assert (first.state, scenario.states, scenario.settlement) == ("expired", ["canceled"], "past_due")
    scenario.stripe.dashboard.pay(a_page(scenario).external_id or "")
    scenario.collect()
    assert scenario.paid == "4.00"
    scenario.books_agree()


def test_collecting_case_13_what_the_bank_asks_is_answered_on_the_page_and_paid_once(
    scenario: Scenario,
) -> None:
    scenario.save_card("4000002760003184")
    scenario.collect()
    assert scenario.states == ["needs_action"]
    scenario.wait(minutes=1)
    scenario.stripe.dashboard.pay(a_page(scenario).external_id or "", "4000002760003184", passes=True)
    scenario.collect()
    scenario.wait(days=10)
    scenario.collect()
    assert (scenario.states, scenario.charged, scenario.paid) == (
        ["needs_action", "succeeded"],
        [400],
        "4.00",
    )
    scenario.books_agree()


def test_case_077_a_bank_that_is_not_answered_leaves_the_invoice_open(scenario: Scenario) -> None:
    page = a_page(scenario)
    scenario.stripe.dashboard.pay(page.external_id or "", "4000002760003184", passes=False)
    scenario.collect()
    assert (scenario.paid, scenario.charged) == ("0.00", [])
    scenario.stripe.dashboard.pay(page.external_id or "")
    scenario.collect()
    assert (scenario.paid, scenario.charged) == ("4.00", [400])
    scenario.books_agree()


def test_collecting_case_24_nothing_is_charged_while_somebody_has_the_page_open(scenario: Scenario) -> None:
    scenario.save_card()
    page = a_page(scenario)
    scenario.collect()
    assert scenario.charged == []
    scenario.stripe.dashboard.pay(page.external_id or "")
    scenario.collect()
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    scenario.books_agree()


def test_a_debit_that_takes_days_is_under_way_until_its_bank_has_paid() -> None:
    with a_scenario(currency="EUR") as scenario:
        scenario.save_account()
        scenario.collect()
        assert (scenario.states, scenario.paid) == (["processing"], "0.00")
        with pytest.raises(VoidError, match="A payment of INV-2026-0001 is under way"):
            voids.void_invoice(
                invoice=scenario.invoice, reason="Wrong address.", by="op", on=scenario.now.date()
            )
        scenario.collect()
        assert scenario.states == ["processing"]
        scenario.stripe.dashboard.end_debit(PaymentAttempt.objects.get().external_id or "", settles=True)
        scenario.collect()
        assert (scenario.states, scenario.paid) == (["succeeded"], "4.00")


def test_case_090_a_backup_from_before_the_charge_is_restored_and_nobody_pays_twice(
    scenario: Scenario,
) -> None:
    """The database forgets its attempt; the next rounds learn of it from Stripe before they charge."""
    scenario.save_card()
    scenario.collect()
    for statement in FORGET:
        with as_owner() as cursor:
            cursor.execute(statement)
    assert (scenario.states, scenario.paid) == ([], "0.00")
    scenario.collect()
    assert (scenario.charged, scenario.states, scenario.paid) == ([400], ["succeeded"], "4.00")
    scenario.books_agree()


def test_collecting_case_25_a_page_that_asks_for_too_much_is_closed(scenario: Scenario) -> None:
    page = a_page(scenario)
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of("1.00", "USD"),
        received_on=scenario.now.date(),
        reference="by transfer",
        recorded_by="op",
    )
    scenario.collect()
    page.refresh_from_db()
    assert (page.state, scenario.states) == ("expired", ["canceled"])
    scenario.stripe.dashboard.pay(a_page(scenario).external_id or "")
    scenario.collect()
    assert (scenario.charged, scenario.paid) == ([300], "4.00")


def test_case_080_what_was_paid_twice_is_to_be_given_back_and_seen(scenario: Scenario) -> None:
    page = a_page(scenario)
    scenario.stripe.dashboard.pay(page.external_id or "")
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=scenario.now.date(),
        reference="by transfer",
        recorded_by="op",
    )
    scenario.collect()
    stand = settlement.load_balance(invoice=scenario.invoice, on=scenario.now.date())
    assert (stand.paid.text, stand.due.text, stand.settlement.value) == ("8.00", "-4.00", "paid")


def test_an_invoice_that_is_made_void_has_no_page_to_pay_on(scenario: Scenario) -> None:
    page = a_page(scenario)
    with pytest.raises(VoidError, match="A page to pay INV-2026-0001 is open"):
        voids.void_invoice(invoice=scenario.invoice, reason="Wrong address.", by="op", on=scenario.now.date())
    checkout_sessions.withdraw_pages(invoice=scenario.invoice, moment=scenario.now)
    voids.void_invoice(invoice=scenario.invoice, reason="Wrong address.", by="op", on=scenario.now.date())
    page.refresh_from_db()
    assert (page.state, scenario.stripe.objects("checkout.session")[0]["status"]) == ("expired", "expired")


def test_a_charge_of_ours_that_belongs_to_nothing_here_stops_its_tenant_until_somebody_looked(
    scenario: Scenario,
) -> None:
    """As after a backup was restored, and an invoice issued anew under another number."""
    scenario.save_card()
    scenario.charge()
    intent = PaymentAttempt.objects.get().external_id or ""
    metadata = scenario.stripe.objects("payment_intent")[0]["metadata"]
    for statement in FORGET:
        with as_owner() as cursor:
            cursor.execute(statement)
    scenario.stripe.dashboard.alter(intent, metadata={**metadata, "ct_number": "INV-2026-0077"})
    scenario.collect()
    scenario.collect()
    assert (scenario.charged, scenario.states, scenario.paid) == ([400], [], "0.00")
    in_review = GatewayEvent.objects.filter(state="review").first()
    assert in_review is not None
    assert "is for INV-2026-0077, which is not known here" in in_review.reason

    for event in GatewayEvent.objects.filter(state="review"):
        manual_review.settle_event(
            event=event, who="op", reason="given back in the dashboard", moment=scenario.now
        )
    in_review.refresh_from_db()
    assert in_review.get_state_display() == "Dealt with"
    assert in_review.reason.endswith("or record it by hand. op: given back in the dashboard")
    scenario.collect()
    assert scenario.charged == [400, 400]


def test_nothing_is_charged_while_what_was_told_of_cannot_be_read(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.stripe.faults.rate_limited("GET /v1/events*")
    scenario.collect()
    assert scenario.charged == []
    scenario.collect()
    assert scenario.charged == [400]


def test_an_attempt_that_waited_while_a_transfer_came_is_not_sent(scenario: Scenario) -> None:
    scenario.save_card()
    attempt = charge_attempts.prepare_attempt(
        invoice=scenario.invoice,
        customer=BillingAccount.objects.get().customer or "",
        moment=scenario.now,
        on=scenario.now.date(),
    )
    assert isinstance(attempt, PaymentAttempt)
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=scenario.now.date(),
        reference="by transfer",
        recorded_by="op",
    )
    scenario.collect()
    assert (scenario.charged, scenario.states, scenario.paid) == ([], ["canceled"], "4.00")


def test_people_say_what_became_of_an_attempt_that_nobody_can_tell_of(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.stripe.faults.cut_before("POST /v1/payment_intents")
    scenario.collect()
    scenario.wait(hours=25)
    scenario.collect()
    assert scenario.states == ["needs_review"]
    with pytest.raises(CollectionError, match="Say how you know"):
        manual_review.mark_unpaid(attempt=PaymentAttempt.objects.get(), reason=" ")
    manual_review.mark_unpaid(
        attempt=PaymentAttempt.objects.get(), reason="Stripe's log has no such request."
    )
    scenario.collect()
    assert (scenario.states, scenario.charged, scenario.paid) == (["canceled", "succeeded"], [400], "4.00")
