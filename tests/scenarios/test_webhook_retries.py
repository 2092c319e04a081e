"""An endpoint that fails is tried again for days, and delays no other. Case 54 of the API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from threading import Event as Signal

import pytest
from django.core import mail
from django.test import override_settings

from portal.core.tenants.models import Tenant
from portal.core.webhooks import deliveries, delivery_attempt, endpoints, http_request, retries, tasks
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook, WebhookState
from portal.ops.metrics.families import families
from tests import builders
from tests.fakes.receiver import Arrival, Receiver, Reply
from tests.webhooks import Clock, a_clock, a_webhook, an_endpoint, deliver, happens

pytestmark = pytest.mark.django_db


@pytest.fixture
def receiver(clock: Clock) -> Iterator[Receiver]:
    with an_endpoint() as receiver:
        receiver.now = clock
        yield receiver


@pytest.fixture
def clock() -> Clock:
    return a_clock()


@pytest.fixture
def vision() -> Tenant:
    return builders.a_tenant("vision")


def the_delivery() -> Delivery:
    return Delivery.objects.get()


def answers(receiver: Receiver, status: int, **headers: str) -> None:
    receiver.reply = lambda arrival: Reply(status, headers)


def test_api_054_an_endpoint_that_fails_is_tried_ten_times_in_three_days(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    a_webhook(receiver, vision)
    answers(receiver, 500)
    happens(vision, 7)
    began, moments = clock(), []
    deliver(clock)
    while (delivery := the_delivery()).next_at is not None:
        moments.append(delivery.next_at - began)
        clock.moment = delivery.next_at - timedelta(milliseconds=1)
        assert deliver(clock) == 0
        clock.moment = delivery.next_at
        assert deliver(clock) == 1
    waits = [later - earlier for earlier, later in zip([timedelta(0), *moments], moments, strict=False)]
    assert [wait.total_seconds() for wait in waits] == [
        *(5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400),
    ]
    assert (delivery.state, delivery.attempts, delivery.status) == (DeliveryState.FAILED, 10, 500)
    assert len({arrival.id for arrival in receiver.arrivals}) == 1
    assert len({arrival.timestamp for arrival in receiver.arrivals}) == 10
    assert Webhook.objects.get().state == WebhookState.ACTIVE


def test_api_054_attempts_are_spread_by_a_fifth_at_most() -> None:
    moment = a_clock()()
    for count, delay in enumerate(retries.DELAYS, 1):
        soon, late = (
            retries.next_at(attempts=count, moment=moment, random=iter([jitter]).__next__)
            for jitter in (0.0, 1.0)
        )
        assert soon is not None
        assert late is not None
        assert (soon - moment, late - moment) == (delay, delay * 1.2)
    assert retries.next_at(attempts=10, moment=moment, random=lambda: 0.0) is None


def test_api_054_an_answer_that_takes_too_long_has_failed(
    receiver: Receiver, vision: Tenant, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each byte comes in time, which would go on for ever."""
    assert http_request.PATIENCE == 15
    monkeypatch.setattr(http_request, "PATIENCE", 0.5)
    a_webhook(receiver, vision)
    receiver.reply = lambda arrival: Reply(200, pieces=(b".",) * 40, pause=0.1)
    happens(vision, 7)
    began = time.monotonic()
    deliver(clock)
    assert time.monotonic() - began < 3
    delivery = the_delivery()
    assert (delivery.state, delivery.status, delivery.error) == (DeliveryState.WAITING, None, "timeout")


def test_api_054_gone_turns_the_webhook_off_and_its_owner_is_mailed_once(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    webhook = a_webhook(receiver, vision)
    answers(receiver, 410)
    happens(vision, 1, 2)
    deliver(clock)
    assert len(receiver.arrivals) == 1
    assert [*Delivery.objects.order_by("pk").values_list("state", flat=True)] == ["stopped", "stopped"]
    happens(vision, 3)
    deliver(clock)
    assert Delivery.objects.count() == 2
    with override_settings(CLUSTERTAB_SENDS_MAIL=True):
        assert [tasks.announce_off(), tasks.announce_off()] == [1, 0]
    (letter,) = mail.outbox
    assert letter.to == [webhook.maker.email]
    assert letter.subject == "Webhook turned off: hook"
    assert "answered 410" in letter.body
    assert webhook.url in letter.body


def test_api_054_five_days_without_a_success_turn_it_off(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    a_webhook(receiver, vision)
    answers(receiver, 503)
    for day in range(6):
        happens(vision, day)
        deliver(clock)
        assert Webhook.objects.get().state == (WebhookState.ACTIVE if day < 5 else WebhookState.FAILING)
        clock.passes(days=1)
    with override_settings(CLUSTERTAB_SENDS_MAIL=True):
        assert tasks.announce_off() == 1
    assert "Every attempt of the last 5 days failed." in mail.outbox[0].body


def test_api_054_a_success_between_begins_the_five_days_anew(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    a_webhook(receiver, vision)
    for day in range(12):
        answers(receiver, 204 if day % 4 == 3 else 500)
        happens(vision, day)
        deliver(clock)
        clock.passes(days=1)
    assert Webhook.objects.get().state == WebhookState.ACTIVE


@pytest.mark.parametrize("status", [429, 503])
def test_api_054_retry_after_is_kept_for_all_of_the_webhook(
    receiver: Receiver, vision: Tenant, clock: Clock, status: int
) -> None:
    a_webhook(receiver, vision)
    answers(receiver, status, **{"Retry-After": "120"})
    happens(vision, 1, 2)
    deliver(clock)
    assert len(receiver.arrivals) == 1
    answers(receiver, 204)
    clock.passes(seconds=119)
    deliver(clock)
    assert len(receiver.arrivals) == 1
    clock.passes(seconds=1)
    deliver(clock)
    assert [*Delivery.objects.values_list("state", flat=True)] == ["delivered", "delivered"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("0", None), ("-5", None), ("", None), ("soon", None), ("99999999999999", 86_400),
        ("٣", None), ("Wed, 25 Nov 2026 10:01:00 GMT", 60), ("Wed, 25 Nov 2026 09:00:00 GMT", None),
        ("Wed, 25 Nov 2099 09:00:00 GMT", 86_400), ("Wed, 25 Nov 2026 10:01:00 -0000", None),
    ],
)  # fmt: skip
def test_api_054_retry_after_in_seconds_or_as_a_date_for_a_day_at_most(
    text: str, seconds: int | None
) -> None:
    moment = builders.at("2026-11-25 10:00")
    until = retries.pause_until(status=429, retry_after=text, moment=moment)
    assert until == (moment + timedelta(seconds=seconds) if seconds else None)
    assert retries.pause_until(status=500, retry_after=text, moment=moment) is None


def test_api_054_a_dead_endpoint_with_a_thousand_events_delays_no_other(
    receiver: Receiver, vision: Tenant, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the first event and says nothing before all others have theirs, however long that takes here."""
    monkeypatch.setattr(http_request, "PATIENCE", 60.0)
    a_webhook(receiver, vision, path="/dead")
    others = [builders.a_tenant(f"lab-{number}") for number in range(20)]
    for lab in others:
        a_webhook(receiver, lab, path=f"/{lab.slug}")
    all_have_theirs, in_time = Signal(), []

    def reply(arrival: Arrival) -> Reply:
        if arrival.path == "/dead":
            in_time.append(all_have_theirs.wait(50))
            return Reply(410)
        if len(receiver.arrivals) == 101:
            all_have_theirs.set()
        return Reply()

    receiver.reply = reply
    happens(vision, *range(1000))
    for lab in others:
        happens(lab, *range(5))
    assert deliver(clock) == 101
    assert in_time == [True]


def test_api_054_what_was_turned_off_or_deleted_while_it_was_sent_stays_so(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    webhook = a_webhook(receiver, vision)
    happens(vision, 1)
    deliveries.place_events(moment=clock())
    assert delivery_attempt.claim(most=5, most_failing=5, moment=clock()) == [webhook.pk]
    assert delivery_attempt.claim(most=5, most_failing=5, moment=clock()) == []  # another worker
    attempt = delivery_attempt.next_attempt(webhook.pk, moment=clock())
    assert attempt is not None
    endpoints.turn_off(webhook=webhook)
    failed, arrived = http_request.Answer(500, 3), http_request.Answer(204, 3)
    delivery_attempt.record_answer(attempt, failed, moment=clock(), random=lambda: 0.0)
    assert the_delivery().state == DeliveryState.STOPPED
    delivery_attempt.record_answer(attempt, arrived, moment=clock(), random=lambda: 0.0)
    assert the_delivery().state == DeliveryState.DELIVERED
    endpoints.delete_webhook(webhook=webhook)
    delivery_attempt.record_answer(attempt, failed, moment=clock(), random=lambda: 0.0)
    delivery_attempt.release(attempt, moment=clock())
    assert delivery_attempt.next_attempt(webhook.pk, moment=clock()) is None
    assert not Delivery.objects.exists()


def test_api_054_a_worker_that_died_is_succeeded_after_a_minute(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    webhook = a_webhook(receiver, vision)
    happens(vision, 1)
    deliveries.place_events(moment=clock())
    delivery_attempt.claim(most=5, most_failing=5, moment=clock())
    assert delivery_attempt.next_attempt(webhook.pk, moment=clock()) is not None  # and it dies
    clock.passes(seconds=59)
    assert deliver(clock) == 0
    clock.passes(seconds=1)
    assert deliver(clock) == 1


def test_metrics_say_what_waits_how_late_it_is_and_who_fails(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    def figures() -> tuple[int, int, int, int]:
        values = {
            metric.name: metric.samples[0].value
            for metric in families(moment=clock(), most=10)
            if metric.name.startswith("clustertab_webhooks")
        }
        names = ("waiting", "lag_seconds", "failing", "given_up")
        waiting, lag, failing, given_up = (int(values[f"clustertab_webhooks_{name}"]) for name in names)
        return waiting, lag, failing, given_up

    webhook = a_webhook(receiver, vision)
    assert figures() == (0, 0, 0, 0)
    happens(vision, 1, 2)
    deliveries.place_events(moment=clock())
    clock.passes(seconds=40)
    assert figures() == (2, 40, 0, 0)
    answers(receiver, 500)
    deliver(clock)
    clock.passes(seconds=40)
    assert figures() == (2, 0, 1, 0)  # it delays itself alone
    answers(receiver, 410)
    deliver(clock)
    assert figures() == (0, 0, 0, 1)
    endpoints.turn_on(webhook=webhook)
    assert figures() == (0, 0, 0, 0)
