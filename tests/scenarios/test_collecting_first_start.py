"""The first start, in an account where others have been charging for years."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billing.models import Collector
from billing.payments import webhook_events
from billing.payments.gateways import stripe
from tests.builders import at
from tests.collecting import Counter, a_counter

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    """An account with twelve charges of somebody else, one a minute, that are listed four at a time."""
    monkeypatch.setattr(stripe, "PAGE", 4)
    monkeypatch.setattr(webhook_events, "KEPT_EVERY", 4)
    with a_counter() as scenario:
        other = scenario.stripe_customer("somebody else's")
        card = scenario.stripe.hand.save_card(other)
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


def lists(counter: Counter) -> list[dict[str, str]]:
    """The bounds of each list of charges that was asked for."""
    return [
        each.params["created"] for each in counter.stripe.requests if str(each) == "GET /v1/payment_intents"
    ]


def test_only_what_can_be_ours_is_read(counter: Counter) -> None:
    """March's invoice is of 1 April: what was charged before 22 March, 29 days ago, is nothing of ours."""
    counter.save_card()
    counter.collect()
    assert {int(each["gte"]) for each in lists(counter)} == {int(at("2026-03-22 09:12").timestamp())}
    assert counter.paid == "4.00"
    assert counter.stripe.violations == []


def test_an_old_invoice_is_looked_for_from_the_day_before_it(counter: Counter) -> None:
    counter.save_card()
    counter.wait(days=60)
    counter.collect()
    assert {int(each["gte"]) for each in lists(counter)} == {int(at("2026-03-31 00:00").timestamp())}


def test_what_broke_off_goes_on_where_it_was_and_nothing_is_charged_before_it_is_done(
    counter: Counter,
) -> None:
    counter.save_card()
    counter.stripe.faults.rate_limited("GET /v1/payment_intents", skip=2)
    counter.collect()
    assert len(lists(counter)) == 3
    assert counter.paid == "0.00"
    reached = Collector.objects.get().charges_down_to
    assert reached == int(at("2026-04-20 09:05").timestamp())  # eight of twelve: 09:12 to 09:05

    counter.collect()
    assert [each.get("lte") for each in lists(counter)[3:]] == [str(reached), str(reached)]
    collector = Collector.objects.get()
    assert (counter.paid, collector.charges_begun, collector.charges_down_to) == ("4.00", None, None)
    before = len(lists(counter))
    counter.wait(minutes=1)
    counter.collect()
    assert len(lists(counter)) == before
    assert counter.stripe.violations == []


def test_what_broke_off_a_month_ago_begins_anew(counter: Counter) -> None:
    """Of what was charged since, events tell no more."""
    counter.save_card()
    counter.stripe.faults.rate_limited("GET /v1/payment_intents", skip=2)
    counter.collect()
    counter.wait(days=30)
    counter.collect()
    assert "lte" not in lists(counter)[3]
    assert counter.paid == "4.00"
