"""Events reach the endpoints of tenants: signed, thin, in order, and again on request. Cases 51 to 53, 55 and 57."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from portal.core.events.models import Event, EventType
from portal.core.tenants.models import Tenant
from portal.core.webhooks import (
    addresses,
    deliveries,
    endpoints,
)
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook
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


def arrivals_want(receiver: Receiver, header: str) -> list[str]:
    return [arrival.headers[header] for arrival in receiver.arrivals]


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
    again: dict[str, Any] = {"webhook": webhook, "since": since, "undelivered_only": undelivered_only}
    with pytest.raises(addresses.WebhookError, match="turn it on first"):
        deliveries.resend_since(**again, moment=clock())
    assert endpoints.turn_on(webhook=webhook)
    assert deliveries.resend_since(**again, moment=clock()) == len(sequences)
    before = len(receiver.arrivals)
    deliver(clock)
    assert [arrival.body["sequence"] for arrival in receiver.arrivals[before:]] == sequences
    assert deliveries.resend_since(**again | {"since": clock.passes(days=1)}, moment=clock()) == 0


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
