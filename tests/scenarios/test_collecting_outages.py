"""Stripe is away, or slow: rounds end soon, go on where they were, and tell each call by its own time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from billing.models import GatewayEvent, PaymentAttempt
from billing.payments import checkout_sessions, collection_run
from portal.dev.stripe_sandbox.faults import EVERY
from tests.collecting import Scenario

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


def add_dispute_events(scenario: Scenario, *names: str) -> None:
    """Disputes that somebody told of, the first one first."""
    for number, name in enumerate(names):
        GatewayEvent.objects.create(
            id=f"evt_{name}",
            type="charge.dispute.updated",
            object_id=name,
            object_kind="dispute",
            live=False,
            created=number,
            received_at=scenario.now,
        )


def test_a_round_ends_after_three_calls_without_an_answer_and_the_next_one_goes_on(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    add_dispute_events(scenario, *(f"du_{number}" for number in range(9)))
    scenario.stripe.faults.cut_before("*", times=EVERY)
    before = len(scenario.stripe.requests)
    done = scenario.collect()
    assert len(done.troubles) == 3
    assert len(scenario.stripe.requests) == before + 3
    scenario.stripe.faults.lift()
    scenario.collect()
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    assert set(GatewayEvent.objects.filter(object_kind="dispute").values_list("state", flat=True)) == {
        "ignored"
    }


def test_what_brings_no_answer_each_time_keeps_nothing_else_from_being_applied(scenario: Scenario) -> None:
    add_dispute_events(scenario, "du_1", "du_2", "du_3", "du_4")
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "")
    scenario.stripe.faults.cut_before("GET /v1/disputes*", times=EVERY)
    scenario.collect()
    scenario.collect()
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    scenario.books_agree()


def test_a_round_that_takes_long_keeps_when_each_call_was_made(scenario: Scenario) -> None:
    """Stripe forgets keys by its own time, so that a call must not look older than it is, or younger."""
    scenario.save_card()
    now = scenario.now

    def clock() -> datetime:
        nonlocal now
        now += timedelta(minutes=20)
        return now

    collection_run.run_collection(gateway=scenario.gateway, clock=clock)
    attempt = PaymentAttempt.objects.get()
    assert attempt.created_at > scenario.now + timedelta(minutes=40)
    assert scenario.charged == [400]
