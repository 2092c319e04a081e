"""What Stripe tells of, and how: signed or forged, twice, late, out of order, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from billing.invoicing import voids
from billing.invoicing.voids import VoidError
from billing.models import BillingAccount, GatewayEvent, PayLink, Payment, PaymentAttempt
from billing.payments import attempts, checkout_sessions, manual_review
from billing.payments.gateway_access import CollectingError
from billing.receivables import settlement
from billing.rules.money import Money
from tests.collecting import Counter, a_counter
from tests.hearing import applied, heard, told
from tests.owner import as_owner

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.Back(done="https://bills.example/back/", stopped="https://bills.example/invoice/")


FORGET = (
    "TRUNCATE billing_movedmoney, billing_gatewayevent CASCADE",
    "ALTER TABLE billing_payment DISABLE TRIGGER USER",
    "DELETE FROM billing_payment",
    "ALTER TABLE billing_payment ENABLE TRIGGER USER",
    "ALTER TABLE billing_paymentattempt DISABLE TRIGGER USER",
    "DELETE FROM billing_paymentattempt",
    "ALTER TABLE billing_paymentattempt ENABLE TRIGGER USER",
    "UPDATE billing_collector SET events_through = 0",
)
"""What a backup from before the charge does not know."""


@pytest.fixture
def counter() -> Iterator[Counter]:
    with a_counter(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        yield scenario


def a_page(counter: Counter) -> PayLink:
    return checkout_sessions.pay_page(
        invoice=counter.invoice,
        gateway=counter.gateway,
        back=BACK,
        who="ann@vision.example",
        moment=counter.now,
    )


def test_case_072_and_collecting_case_16_a_notification_that_comes_twice_has_one_effect(
    counter: Counter,
) -> None:
    counter.stripe.hand.pay(a_page(counter).external_id or "")
    for body, headers in told(counter):
        assert (heard(body, headers), heard(body, headers)) == (200, 200)
    applied(counter)
    applied(counter)
    assert (counter.paid, Payment.objects.count(), counter.states) == ("4.00", 1, ["succeeded"])
    counter.books_agree()


def test_case_072_and_collecting_case_17_the_order_of_what_is_told_does_not_matter(
    counter: Counter,
) -> None:
    counter.save_card()
    counter.charge()
    intent = PaymentAttempt.objects.get().external_id or ""
    counter.stripe.hand.refund(intent, 150)
    for body, headers in reversed(told(counter)):
        assert heard(body, headers) == 200
        applied(counter)
    assert (counter.paid, counter.states) == ("2.50", ["succeeded"])
    counter.books_agree()


def test_collecting_case_19_two_secrets_hold_while_one_is_replaced(counter: Counter, settings: Any) -> None:
    settings.STRIPE_WEBHOOK_SECRETS = ["whsec_the_new_one", "whsec_of_the_tests"]
    counter.stripe.hand.pay(a_page(counter).external_id or "")
    assert {heard(*each) for each in told(counter)} == {200}
    settings.STRIPE_WEBHOOK_SECRETS = ["whsec_the_new_one"]
    counter.stripe.hand.refund(counter.stripe.objects("payment_intent")[0]["id"], 100)
    assert {heard(*each) for each in told(counter)} == {400}


def test_collecting_case_20_without_any_notification_the_next_round_finds_out(
    counter: Counter,
) -> None:
    counter.stripe.hand.pay(a_page(counter).external_id or "")
    assert counter.paid == "0.00"
    counter.wait(days=2)
    counter.collect()
    assert (counter.paid, counter.states) == ("4.00", ["succeeded"])
    counter.books_agree()


def test_collecting_case_14_a_page_that_nobody_used_closes_and_another_can_be_opened(
    counter: Counter,
) -> None:
    first = a_page(counter)
    counter.wait(hours=25)
    counter.collect()
    first.refresh_from_db()
    assert (first.state, counter.states, counter.standing) == ("expired", ["canceled"], "past_due")
    counter.stripe.hand.pay(a_page(counter).external_id or "")
    counter.collect()
    assert counter.paid == "4.00"
    counter.books_agree()


def test_collecting_case_13_what_the_bank_asks_is_answered_on_the_page_and_paid_once(
    counter: Counter,
) -> None:
    counter.save_card("4000002760003184")
    counter.collect()
    assert counter.states == ["needs_action"]
    counter.wait(minutes=1)
    counter.stripe.hand.pay(a_page(counter).external_id or "", "4000002760003184", passes=True)
    counter.collect()
    counter.wait(days=10)
    counter.collect()
    assert (counter.states, counter.taken, counter.paid) == (["needs_action", "succeeded"], [400], "4.00")
    counter.books_agree()


def test_case_077_a_bank_that_is_not_answered_leaves_the_invoice_open(counter: Counter) -> None:
    page = a_page(counter)
    counter.stripe.hand.pay(page.external_id or "", "4000002760003184", passes=False)
    counter.collect()
    assert (counter.paid, counter.taken) == ("0.00", [])
    counter.stripe.hand.pay(page.external_id or "")
    counter.collect()
    assert (counter.paid, counter.taken) == ("4.00", [400])
    counter.books_agree()


def test_collecting_case_24_nothing_is_charged_while_somebody_has_the_page_open(counter: Counter) -> None:
    counter.save_card()
    page = a_page(counter)
    counter.collect()
    assert counter.taken == []
    counter.stripe.hand.pay(page.external_id or "")
    counter.collect()
    assert (counter.taken, counter.paid) == ([400], "4.00")
    counter.books_agree()


def test_a_debit_that_takes_days_is_under_way_until_its_bank_has_paid() -> None:
    with a_counter(currency="EUR") as counter:
        counter.save_account()
        counter.collect()
        assert (counter.states, counter.paid) == (["processing"], "0.00")
        with pytest.raises(VoidError, match="A payment of INV-2026-0001 is under way"):
            voids.void(invoice=counter.invoice, reason="Wrong address.", by="op", on=counter.now.date())
        counter.collect()
        assert counter.states == ["processing"]
        counter.stripe.hand.end_debit(PaymentAttempt.objects.get().external_id or "", settles=True)
        counter.collect()
        assert (counter.states, counter.paid) == (["succeeded"], "4.00")


def test_case_090_a_backup_from_before_the_charge_is_restored_and_nobody_pays_twice(counter: Counter) -> None:
    """The database forgets its attempt; the next rounds learn of it from Stripe before they charge."""
    counter.save_card()
    counter.collect()
    for statement in FORGET:
        with as_owner() as cursor:
            cursor.execute(statement)
    assert (counter.states, counter.paid) == ([], "0.00")
    counter.collect()
    assert (counter.taken, counter.states, counter.paid) == ([400], ["succeeded"], "4.00")
    counter.books_agree()


def test_collecting_case_25_a_page_that_asks_for_too_much_is_closed(counter: Counter) -> None:
    page = a_page(counter)
    settlement.record_payment(
        invoice=counter.invoice,
        amount=Money.of("1.00", "USD"),
        received_on=counter.now.date(),
        reference="by transfer",
        recorded_by="op",
    )
    counter.collect()
    page.refresh_from_db()
    assert (page.state, counter.states) == ("expired", ["canceled"])
    counter.stripe.hand.pay(a_page(counter).external_id or "")
    counter.collect()
    assert (counter.taken, counter.paid) == ([300], "4.00")


def test_case_080_what_was_paid_twice_is_to_be_given_back_and_seen(counter: Counter) -> None:
    page = a_page(counter)
    counter.stripe.hand.pay(page.external_id or "")
    settlement.record_payment(
        invoice=counter.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=counter.now.date(),
        reference="by transfer",
        recorded_by="op",
    )
    counter.collect()
    stand = settlement.balance(invoice=counter.invoice, on=counter.now.date())
    assert (stand.paid.text, stand.due.text, stand.settlement.value) == ("8.00", "-4.00", "paid")


def test_an_invoice_that_is_made_void_has_no_page_to_pay_on(counter: Counter) -> None:
    page = a_page(counter)
    with pytest.raises(VoidError, match="A page to pay INV-2026-0001 is open"):
        voids.void(invoice=counter.invoice, reason="Wrong address.", by="op", on=counter.now.date())
    checkout_sessions.withdraw(invoice=counter.invoice, moment=counter.now)
    voids.void(invoice=counter.invoice, reason="Wrong address.", by="op", on=counter.now.date())
    page.refresh_from_db()
    assert (page.state, counter.stripe.objects("checkout.session")[0]["status"]) == ("expired", "expired")


def test_a_charge_of_ours_that_belongs_to_nothing_here_stops_its_tenant_until_somebody_looked(
    counter: Counter,
) -> None:
    """As after a backup was restored, and an invoice issued anew under another number."""
    counter.save_card()
    counter.charge()
    intent = PaymentAttempt.objects.get().external_id or ""
    metadata = counter.stripe.objects("payment_intent")[0]["metadata"]
    for statement in FORGET:
        with as_owner() as cursor:
            cursor.execute(statement)
    counter.stripe.hand.alter(intent, metadata={**metadata, "ct_number": "INV-2026-0077"})
    counter.collect()
    counter.collect()
    assert (counter.taken, counter.states, counter.paid) == ([400], [], "0.00")
    parked = GatewayEvent.objects.filter(state="parked").first()
    assert parked is not None
    assert "is for INV-2026-0077, which is not known here" in parked.why

    for event in GatewayEvent.objects.filter(state="parked"):
        manual_review.dealt_with(event=event, who="op", why="given back in the dashboard", moment=counter.now)
    parked.refresh_from_db()
    assert parked.get_state_display() == "Dealt with"
    assert parked.why.endswith("or record it by hand. op: given back in the dashboard")
    counter.collect()
    assert counter.taken == [400, 400]


def test_nothing_is_charged_while_what_was_told_of_cannot_be_read(counter: Counter) -> None:
    counter.save_card()
    counter.stripe.faults.rate_limited("GET /v1/events*")
    counter.collect()
    assert counter.taken == []
    counter.collect()
    assert counter.taken == [400]


def test_an_attempt_that_waited_while_a_transfer_came_is_not_sent(counter: Counter) -> None:
    counter.save_card()
    attempt = attempts.prepare(
        invoice=counter.invoice,
        customer=BillingAccount.objects.get().customer or "",
        moment=counter.now,
        on=counter.now.date(),
    )
    assert isinstance(attempt, PaymentAttempt)
    settlement.record_payment(
        invoice=counter.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=counter.now.date(),
        reference="by transfer",
        recorded_by="op",
    )
    counter.collect()
    assert (counter.taken, counter.states, counter.paid) == ([], ["canceled"], "4.00")


def test_people_say_what_became_of_an_attempt_that_nobody_can_tell_of(counter: Counter) -> None:
    counter.save_card()
    counter.stripe.faults.cut_before("POST /v1/payment_intents")
    counter.collect()
    counter.wait(hours=25)
    counter.collect()
    assert counter.states == ["needs_review"]
    with pytest.raises(CollectingError, match="Say how you know"):
        manual_review.not_made(attempt=PaymentAttempt.objects.get(), why=" ")
    manual_review.not_made(attempt=PaymentAttempt.objects.get(), why="Stripe's log has no such request.")
    counter.collect()
    assert (counter.states, counter.taken, counter.paid) == (["canceled", "succeeded"], [400], "4.00")
