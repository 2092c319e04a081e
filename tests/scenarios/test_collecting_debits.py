"""Direct debits: their money comes days after they were handed in."""

from __future__ import annotations

from datetime import date

import pytest

from billing.models import Payment, PaymentAttempt, PaymentRefund
from tests.builders import at
from tests.collecting import Scenario, a_scenario
from tests.history import history
from tests.tiers import strides

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_debit_is_received_on_the_day_its_money_came() -> None:
    with a_scenario(currency="EUR") as scenario:
        scenario.save_account()
        scenario.collect()
        assert (scenario.now, scenario.states) == (at("2026-04-20 09:00"), ["processing"])
        intent = PaymentAttempt.objects.get().external_id or ""
        scenario.stripe.dashboard.hold_debit(intent)
        scenario.wait(days=12)
        scenario.stripe.dashboard.end_debit(intent, settles=True)
        scenario.collect()
        (payment,) = Payment.objects.all()
        assert (payment.received_on, payment.amount, scenario.paid) == (date(2026, 5, 2), 400, "4.00")
        scenario.books_agree()


def requests_for(scenario: Scenario, what: str) -> int:
    """How often Stripe was asked how objects of that kind stand."""
    return sum(1 for request in scenario.stripe.requests if str(request).startswith(f"GET /v1/{what}/"))


@pytest.mark.swept
def test_a_debit_under_way_is_asked_after_now_and_then_and_leaves_no_trace_each_time() -> None:
    with a_scenario(currency="EUR") as scenario:
        scenario.save_account()
        scenario.collect()
        scenario.stripe.dashboard.hold_debit(PaymentAttempt.objects.get().external_id or "")
        before, changes = requests_for(scenario, "payment_intents"), history(PaymentAttempt)
        scenario.collect()
        once = requests_for(scenario, "payment_intents")
        for stride in strides(60):
            scenario.wait(minutes=stride)
            scenario.collect()
        assert once - before <= 1
        assert requests_for(scenario, "payment_intents") - before <= 7  # every 10 minutes
        assert (history(PaymentAttempt), scenario.states) == (changes, ["processing"])


def test_a_refund_under_way_is_asked_after_now_and_then() -> None:
    with a_scenario() as scenario:
        scenario.save_card("4000000000007726")
        scenario.collect()
        scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 100)
        scenario.collect()
        assert PaymentRefund.objects.get().state == "pending"
        before = requests_for(scenario, "refunds")
        for _ in range(5):
            scenario.collect()
        assert requests_for(scenario, "refunds") - before <= 1
        scenario.wait(minutes=11)
        scenario.collect()
        assert (PaymentRefund.objects.get().state, scenario.paid) == ("succeeded", "3.00")
        scenario.books_agree()
