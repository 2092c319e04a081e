"""Direct debits: their money comes days after they were handed in."""

from __future__ import annotations

from datetime import date

import pytest

from billing.models import Payment, PaymentAttempt, PaymentRefund
from tests.builders import at
from tests.collecting import Counter, a_counter
from tests.history import history

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_debit_is_received_on_the_day_its_money_came() -> None:
    with a_counter(currency="EUR") as counter:
        counter.save_account()
        counter.collect()
        assert (counter.now, counter.states) == (at("2026-04-20 09:00"), ["processing"])
        intent = PaymentAttempt.objects.get().external_id or ""
        counter.stripe.hand.hold_debit(intent)
        counter.wait(days=12)
        counter.stripe.hand.end_debit(intent, settles=True)
        counter.collect()
        (payment,) = Payment.objects.all()
        assert (payment.received_on, payment.amount, counter.paid) == (date(2026, 5, 2), 400, "4.00")
        counter.books_agree()


def asked_of(counter: Counter, what: str) -> int:
    """How often Stripe was asked how objects of that kind stand."""
    return sum(1 for each in counter.stripe.requests if str(each).startswith(f"GET /v1/{what}/"))


def test_a_debit_under_way_is_asked_after_now_and_then_and_leaves_no_trace_each_time() -> None:
    with a_counter(currency="EUR") as counter:
        counter.save_account()
        counter.collect()
        counter.stripe.hand.hold_debit(PaymentAttempt.objects.get().external_id or "")
        before, changes = asked_of(counter, "payment_intents"), history(PaymentAttempt)
        counter.collect()
        once = asked_of(counter, "payment_intents")
        for _ in range(60):
            counter.wait(minutes=1)
            counter.collect()
        assert once - before <= 1
        assert asked_of(counter, "payment_intents") - before <= 7  # every 10 minutes
        assert (history(PaymentAttempt), counter.states) == (changes, ["processing"])


def test_a_refund_under_way_is_asked_after_now_and_then() -> None:
    with a_counter() as counter:
        counter.save_card("4000000000007726")
        counter.collect()
        counter.stripe.hand.refund(PaymentAttempt.objects.get().external_id or "", 100)
        counter.collect()
        assert PaymentRefund.objects.get().state == "pending"
        before = asked_of(counter, "refunds")
        for _ in range(5):
            counter.collect()
        assert asked_of(counter, "refunds") - before <= 1
        counter.wait(minutes=11)
        counter.collect()
        assert (PaymentRefund.objects.get().state, counter.paid) == ("succeeded", "3.00")
        counter.books_agree()
