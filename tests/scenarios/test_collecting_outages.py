"""Stripe is away, or slow: rounds end soon, go on where they were, and tell each call by its own time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from billing.models import GatewayEvent, PaymentAttempt
from billing.payments import checkout_sessions, collection_run
from portal.dev.stripe_sandbox.faults import EVERY
from tests.collecting import Counter

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.Back(done="https://bills.example/back/", stopped="https://bills.example/invoice/")


def told_of(counter: Counter, *names: str) -> None:
    """Disputes that somebody told of, the first one first."""
    for number, name in enumerate(names):
        GatewayEvent.objects.create(
            id=f"evt_{name}",
            type="charge.dispute.updated",
            object_id=name,
            object_kind="dispute",
            live=False,
            created=number,
            received_at=counter.now,
        )


def test_a_round_ends_after_three_calls_without_an_answer_and_the_next_one_goes_on(counter: Counter) -> None:
    counter.save_card()
    told_of(counter, *(f"du_{number}" for number in range(9)))
    counter.stripe.faults.cut_before("*", times=EVERY)
    before = len(counter.stripe.requests)
    done = counter.collect()
    assert len(done.troubles) == 3
    assert len(counter.stripe.requests) == before + 3
    counter.stripe.faults.lift()
    counter.collect()
    assert (counter.taken, counter.paid) == ([400], "4.00")
    assert set(GatewayEvent.objects.filter(object_kind="dispute").values_list("state", flat=True)) == {
        "ignored"
    }


def test_what_brings_no_answer_each_time_keeps_nothing_else_from_being_applied(counter: Counter) -> None:
    told_of(counter, "du_1", "du_2", "du_3", "du_4")
    page = checkout_sessions.pay_page(
        invoice=counter.invoice, gateway=counter.gateway, back=BACK, who="ann", moment=counter.now
    )
    counter.stripe.hand.pay(page.external_id or "")
    counter.stripe.faults.cut_before("GET /v1/disputes*", times=EVERY)
    counter.collect()
    counter.collect()
    assert (counter.taken, counter.paid) == ([400], "4.00")
    counter.books_agree()


def test_a_round_that_takes_long_keeps_when_each_call_was_made(counter: Counter) -> None:
    """Stripe forgets keys by its own time, so that a call must not look older than it is, or younger."""
    counter.save_card()
    now = counter.now

    def clock() -> datetime:
        nonlocal now
        now += timedelta(minutes=20)
        return now

    collection_run.run(gateway=counter.gateway, clock=clock)
    attempt = PaymentAttempt.objects.get()
    assert attempt.made_at > counter.now + timedelta(minutes=40)
    assert counter.taken == [400]
