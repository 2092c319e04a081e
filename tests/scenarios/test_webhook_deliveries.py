"""Events reach the endpoints of tenants: signed, tried again for days, in order. Cases 51 to 55 of the API."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core import mail
from django.db import transaction
from django.test import override_settings
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from portal.core.events.models import Event, EventType
from portal.core.tenants.models import Tenant
from portal.core.webhooks import deliveries, delivery_run, endpoints, retries, sending, tasks
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook, WebhookState
from tests import builders
from tests.api.door import door
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


def test_api_051_the_published_package_verifies_a_delivery_and_refuses_an_old_one(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    a_webhook(receiver, vision)
    happens(vision, 7)
    deliver(clock)
    (arrival,) = receiver.arrivals  # which the package has verified
    verifier = Verifier(receiver.secrets["/hook"][0])
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        verifier.verify(arrival.raw.replace(b"issued", b"isSued"), arrival.headers)
    old = arrival.timestamp - 301
    resigned = arrival.headers | {"webhook-timestamp": str(old)}
    with pytest.raises(WebhookVerificationError, match="too old"):
        verifier.verify(arrival.raw, resigned)


def test_api_051_two_secrets_sign_during_a_rotation_and_one_after_it(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    webhook = a_webhook(receiver, vision)
    (first,) = receiver.secrets["/hook"]
    second = endpoints.rotate_secret(webhook=webhook, overlap=endpoints.OVERLAP, moment=clock()).secret
    receiver.secrets["/hook"] = [first, second]  # each of which verifies
    happens(vision, 1)
    deliver(clock)
    clock.passes(hours=24)
    receiver.secrets["/hook"] = [second]
    happens(vision, 2)
    deliver(clock)
    signatures = [arrival.headers["webhook-signature"].split(" ") for arrival in receiver.arrivals]
    assert [len(one) for one in signatures] == [2, 1]
    with pytest.raises(WebhookVerificationError):
        Verifier(first).verify(
            receiver.arrivals[-1].raw,
            receiver.arrivals[-1].headers | {"webhook-timestamp": str(int(time.time()))},
        )


def test_api_051_secrets_rest_encrypted(receiver: Receiver, vision: Tenant) -> None:
    webhook = a_webhook(receiver, vision)
    (secret,) = receiver.secrets["/hook"]
    assert secret.startswith("whsec_")
    stored = Webhook.objects.filter(pk=webhook.pk).values_list("secret", flat=True).get()
    assert secret not in str(stored)
    assert secret not in stored.token
    assert stored.reveal() == secret


def test_api_052_what_is_sent_is_what_the_api_answers_and_thin(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    webhook = a_webhook(receiver, vision)
    happens(vision, 7)
    deliver(clock)
    (arrival,) = receiver.arrivals
    (event,) = door(webhook.maker, vision).reads("/events")["data"]
    assert arrival.body == event
    assert arrival.id == event["id"]
    assert len(arrival.raw) < 400
    assert {*event["data"]} == {"id", "object", "state", "tenant"}


def test_api_052_a_webhook_gets_the_types_that_it_wants_of_its_own_tenant(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    speech = builders.a_tenant("speech")
    a_webhook(receiver, vision, "invoice.paid", path="/paid")
    a_webhook(receiver, speech, path="/speech")
    a_webhook(receiver, None, path="/operators")
    happens(vision, 1)
    happens(vision, 1, what=EventType.INVOICE_PAID, state="paid")
    happens(None, 3, what=EventType.CLOSE_FINISHED, state="issue")
    deliver(clock)
    assert receiver.types("/paid") == ["invoice.paid"]
    assert receiver.types("/speech") == []
    assert receiver.types("/operators") == ["invoice.issued", "invoice.paid", "close.finished"]


def test_api_053_what_is_rolled_back_is_never_sent(receiver: Receiver, vision: Tenant, clock: Clock) -> None:
    a_webhook(receiver, vision)
    with transaction.atomic():
        happens(vision, 1)
        transaction.set_rollback(True)
    happens(vision, 2)
    deliver(clock)
    deliver(clock)
    assert [arrival.body["sequence"] for arrival in receiver.arrivals] == [1]
    assert Event.objects.count() == 1


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
    for attempts, delay in enumerate(retries.DELAYS, 1):
        soon, late = (
            retries.next_at(attempts=attempts, moment=moment, random=lambda jitter=jitter: jitter)
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
    assert sending.PATIENCE == 15
    monkeypatch.setattr(sending, "PATIENCE", 0.5)
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
    monkeypatch.setattr(delivery_run, "LONGEST", 3.0)
    monkeypatch.setattr(sending, "PATIENCE", 3.0)
    a_webhook(receiver, vision, path="/dead")
    others = [builders.a_tenant(f"lab-{number}") for number in range(20)]
    for lab in others:
        a_webhook(receiver, lab, path=f"/{lab.slug}")
    receiver.reply = lambda arrival: (
        Reply(200, pieces=(b"",), pause=30) if arrival.path == "/dead" else Reply()
    )
    happens(vision, *range(1000))
    for lab in others:
        happens(lab, *range(5))
    while deliveries.place_events(moment=clock()):
        pass
    began = time.monotonic()
    delivery_run.deliver_due(clock=clock, random=lambda: 0.0)
    waits = [arrival.at - began for arrival in receiver.arrivals if arrival.path != "/dead"]
    assert len(waits) == 100
    assert statistics.quantiles(waits, n=20)[-1] <= 2.0
    assert Delivery.objects.waiting().filter(tenant=vision).count() == 1000


def test_api_055_events_arrive_in_order_while_nothing_fails(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    a_webhook(receiver, vision)
    happens(vision, *range(60))
    deliver(clock)
    assert [arrival.body["sequence"] for arrival in receiver.arrivals] == list(range(1, 61))


def test_api_054_a_redirect_is_not_followed(receiver: Receiver, vision: Tenant, clock: Clock) -> None:
    a_webhook(receiver, vision)
    answers(receiver, 302, Location=receiver.url("/elsewhere"))
    happens(vision, 1)
    deliver(clock)
    assert [arrival.path for arrival in receiver.arrivals] == ["/hook"]
    assert (the_delivery().status, the_delivery().error) == (302, "redirect")


def test_api_057_the_first_kilobyte_of_an_answer_is_stored_and_four_are_read(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    a_webhook(receiver, vision)
    receiver.reply = lambda arrival: Reply(500, pieces=(b"caf\xc3\xa9\x00" + b"x" * 10_000_000,))
    happens(vision, 1)
    deliver(clock)
    delivery = the_delivery()
    assert delivery.answer.startswith("café\ufffdx")
    assert len(delivery.answer.encode()) <= 1024 + 2
    assert delivery.milliseconds is not None
    assert delivery.tried_at == clock()


def test_api_057_a_packed_answer_is_not_unpacked(receiver: Receiver, vision: Tenant, clock: Clock) -> None:
    a_webhook(receiver, vision)
    receiver.reply = lambda arrival: Reply(200, {"Content-Encoding": "gzip"}, (b"\x1f\x8b" + b"?" * 100,))
    happens(vision, 1)
    deliver(clock)
    assert the_delivery().state == DeliveryState.DELIVERED
    assert arrivals_want(receiver, "accept-encoding") == ["identity"]


def arrivals_want(receiver: Receiver, header: str) -> list[str]:
    return [arrival.headers[header] for arrival in receiver.arrivals]


def test_api_057_a_test_says_what_it_is_and_has_the_same_shape(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    webhook = a_webhook(receiver, vision, "invoice.paid")
    deliveries.send_test(webhook=webhook, moment=clock())
    deliver(clock)
    (arrival,) = receiver.arrivals
    assert arrival.body["type"] == "webhook.test"
    assert arrival.body["data"] | {"id": ""} == {
        "id": "", "object": "webhook", "state": "active", "tenant": "vision",
    }  # fmt: skip
    assert arrival.id.startswith("test_")


def test_api_057_one_is_sent_again_under_its_id(receiver: Receiver, vision: Tenant, clock: Clock) -> None:
    a_webhook(receiver, vision)
    happens(vision, 1)
    deliver(clock)
    for _ in range(2):  # asked for twice, sent once
        deliveries.resend(delivery=the_delivery(), moment=clock.passes(seconds=1))
    deliver(clock)
    first, again = receiver.arrivals
    assert first.id == again.id
    assert first.raw == again.raw


@pytest.mark.parametrize(("undelivered_only", "sequences"), [(True, [2, 3, 4]), (False, [1, 2, 3, 4])])
def test_api_057_all_since_a_time_are_sent_again_with_those_of_while_it_was_off(
    receiver: Receiver, vision: Tenant, clock: Clock, undelivered_only: bool, sequences: list[int]
) -> None:
    webhook = a_webhook(receiver, vision)
    happens(vision, 1)
    deliver(clock)
    answers(receiver, 410)
    happens(vision, 2)
    deliver(clock)
    happens(vision, 3, 4)
    deliver(clock)
    answers(receiver, 204)
    since = clock() - timedelta(days=1)
    again = {"webhook": webhook, "since": since, "undelivered_only": undelivered_only}
    with pytest.raises(endpoints.WebhookError, match="turn it on first"):
        deliveries.resend_since(**again, moment=clock())  # type: ignore[arg-type]
    assert endpoints.turn_on(webhook=webhook)
    assert deliveries.resend_since(**again, moment=clock()) == len(sequences)  # type: ignore[arg-type]
    before = len(receiver.arrivals)
    deliver(clock)
    assert [arrival.body["sequence"] for arrival in receiver.arrivals[before:]] == sequences
    assert deliveries.resend_since(**again | {"since": clock.passes(days=1)}, moment=clock()) == 0  # type: ignore[arg-type]


def test_api_054_what_was_turned_off_or_deleted_while_it_was_sent_stays_so(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    webhook = a_webhook(receiver, vision)
    happens(vision, 1)
    deliveries.place_events(moment=clock())
    from portal.core.webhooks import attempts

    assert attempts.claim(most=5, most_failing=5, moment=clock()) == [webhook.pk]
    assert attempts.claim(most=5, most_failing=5, moment=clock()) == []  # another worker
    attempt = attempts.next_attempt(webhook.pk, moment=clock())
    assert attempt is not None
    endpoints.turn_off(webhook=webhook)
    failed, arrived = sending.Answer(500, 3), sending.Answer(204, 3)
    attempts.record_answer(attempt, failed, moment=clock(), random=lambda: 0.0)
    assert the_delivery().state == DeliveryState.STOPPED
    attempts.record_answer(attempt, arrived, moment=clock(), random=lambda: 0.0)
    assert the_delivery().state == DeliveryState.DELIVERED
    endpoints.delete_webhook(webhook=webhook)
    attempts.record_answer(attempt, failed, moment=clock(), random=lambda: 0.0)
    attempts.release(attempt, moment=clock())
    assert attempts.next_attempt(webhook.pk, moment=clock()) is None
    assert not Delivery.objects.exists()


def test_api_054_a_worker_that_died_is_succeeded_after_a_minute(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    webhook = a_webhook(receiver, vision)
    happens(vision, 1)
    deliveries.place_events(moment=clock())
    from portal.core.webhooks import attempts

    attempts.claim(most=5, most_failing=5, moment=clock())
    assert attempts.next_attempt(webhook.pk, moment=clock()) is not None  # and it dies
    clock.passes(seconds=59)
    assert deliver(clock) == 0
    clock.passes(seconds=1)
    assert deliver(clock) == 1


def test_deliveries_of_more_than_thirty_days_go_unless_they_wait(
    receiver: Receiver, vision: Tenant, clock: Clock
) -> None:
    a_webhook(receiver, vision)
    happens(vision, 1)
    deliver(clock)
    answers(receiver, 500)
    happens(vision, 2)
    deliver(clock)
    assert deliveries.forget_old(moment=clock() + timedelta(days=30)) == 0
    assert deliveries.forget_old(moment=clock() + timedelta(days=31)) == 1
    assert the_delivery().state == DeliveryState.WAITING


def test_a_delivery_whose_event_is_gone_says_so(receiver: Receiver, vision: Tenant, clock: Clock) -> None:
    a_webhook(receiver, vision)
    happens(vision, 1)
    deliveries.place_events(moment=clock())
    Event.objects.all().delete()
    assert deliver(clock) == 0
    assert (the_delivery().state, the_delivery().error) == (DeliveryState.FAILED, "event-gone")


def test_a_body_is_the_same_in_each_attempt(receiver: Receiver, vision: Tenant, clock: Clock) -> None:
    a_webhook(receiver, vision)
    bodies: list[bytes] = []

    def reply(arrival: Arrival) -> Reply:
        bodies.append(arrival.raw)
        return Reply(500)

    receiver.reply = reply
    happens(vision, 1)
    deliver(clock)
    clock.passes(seconds=10)
    deliver(clock)
    assert len(bodies) == 2
    assert len({*bodies}) == 1
    assert json.loads(bodies[0])["type"] == "invoice.issued"
