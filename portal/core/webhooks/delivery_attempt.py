"""The next attempt of a webhook that a worker has claimed, and what follows from its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Q

from portal.core import identifiers
from portal.core.events.bodies import body_of, timestamp
from portal.core.events.models import Event
from portal.core.vault import VaultError
from portal.core.webhooks import endpoints, retries, signing
from portal.core.webhooks.deliveries import TEST, sql
from portal.core.webhooks.http_request import Answer
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook, WebhookState

CLAIM = timedelta(
    seconds=60
)  # longer than an attempt takes: after it, a worker that does not answer has died


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request to be made, for a delivery of a webhook that is claimed until then."""

    delivery: int
    webhook: int
    tenant: int | None
    claimed_until: datetime
    url: str
    headers: Mapping[str, str]
    body: bytes
    is_failing: bool  # whether the attempt before failed


def claim(*, most: int, most_failing: int, moment: datetime) -> list[int]:
    """Webhooks for which something is due and which no other worker has: they are the caller's for a minute."""
    if most <= 0:
        return []
    values: dict[str, Any] = {
        "most": most,
        "most_failing": most_failing,
        "moment": moment,
        "end": moment + CLAIM,
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.DUE, values)
        return [webhook for (webhook,) in cursor.fetchall()]


@transaction.atomic
def next_attempt(webhook: int, *, moment: datetime) -> Attempt | None:
    """The delivery that is due first, by the order of events; the claim lasts for half a minute more, at least.

    None where nothing is due any more, or the webhook is off, pauses, or was deleted: then the claim ends.
    """
    row = Webhook.objects.select_for_update(of=["self"]).select_related("tenant").filter(pk=webhook).first()
    if row is None:
        return None
    is_open = row.state == WebhookState.ACTIVE and (row.paused_until is None or row.paused_until <= moment)
    due = Delivery.objects.filter(webhook=row, next_at__lte=moment).order_by("next_at", "event_number", "pk")
    while is_open and (delivery := due.first()) is not None:
        attempt = _prepared(row, delivery, moment)
        if attempt is not None:
            if attempt.claimed_until != row.claimed_until:
                Webhook.objects.filter(pk=row.pk).update(claimed_until=attempt.claimed_until)
            return attempt
    Webhook.objects.filter(pk=row.pk).update(claimed_until=moment)
    return None


def _prepared(row: Webhook, delivery: Delivery, moment: datetime) -> Attempt | None:
    """None where there is nothing to send or to sign by: the delivery says so, and waits or has ended."""
    message = _message(row, delivery)
    if message is None:
        delivery.state, delivery.next_at, delivery.error = DeliveryState.FAILED, None, "event-gone"
        delivery.save(update_fields=["state", "next_at", "error"])
        return None
    try:
        keys = _keys(row, moment)
    except VaultError:
        _fail(delivery, Answer(None, 0, error="secret"), moment, lambda: 0.0)
        return None
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    headers = signing.headers(
        message=str(message["id"]), timestamp=int(moment.timestamp()), body=body, keys=keys
    )
    is_failing = row.failing_since is not None
    until = row.claimed_until
    if until is None or until < moment + CLAIM / 2:  # else the claim outlasts the attempt as it is
        until = moment + CLAIM
    return Attempt(delivery.pk, row.pk, row.tenant_id, until, row.url, headers, body, is_failing)


def _message(row: Webhook, delivery: Delivery) -> dict[str, Any] | None:
    """What is sent: the event as the API has it."""
    if delivery.event_number is not None:
        event = Event.objects.select_related("tenant").filter(number=delivery.event_number).first()
        return body_of(event) if event else None
    return {
        "id": message_id(delivery),
        "type": TEST,
        "timestamp": timestamp(delivery.created_at),
        "sequence": None,
        "data": {
            "id": identifiers.write("whk", row.pk),
            "object": "webhook",
            "state": row.state,
            "tenant": row.tenant.slug if row.tenant else None,
        },
    }


def message_id(delivery: Delivery) -> str:
    """The `webhook-id` of all its attempts: the event's, or of a test its own."""
    if delivery.event_number is not None:
        return identifiers.write("evt", delivery.event_number)
    return identifiers.write("test", delivery.pk)


def _keys(row: Webhook, moment: datetime) -> list[str]:
    keys = [row.secret.reveal()]
    if row.previous_until is not None and moment < row.previous_until:
        keys.append(row.previous_secret.reveal())
    return keys


@transaction.atomic
def record_answer(attempt: Attempt, answer: Answer, *, moment: datetime, random: Callable[[], float]) -> None:
    """Write down how it went: it is done, comes again, or was the last try; and what this says of the webhook.

    Of a delivery or a webhook that was deleted meanwhile nothing is left to write. A delivery that was stopped
    meanwhile stays so, unless it arrived.
    """
    row = Webhook.objects.select_for_update().filter(pk=attempt.webhook).first()
    delivery = Delivery.objects.select_for_update().filter(pk=attempt.delivery).first()
    if row is None or delivery is None:
        return
    if answer.is_success:
        _succeed(delivery, answer, moment)
        if row.failing_since is not None:
            Webhook.objects.filter(pk=row.pk).update(failing_since=None)
        return
    _fail(delivery, answer, moment, random)
    if row.url != attempt.url:  # it says nothing of the new address
        return
    pause = retries.pause_until(status=answer.status, retry_after=answer.retry_after, moment=moment)
    row.failing_since, row.paused_until = row.failing_since or moment, pause
    row.save(update_fields=["failing_since", "paused_until"])
    if answer.status == retries.GONE:
        _give_up(row, WebhookState.GONE)
    elif moment - row.failing_since >= retries.GIVEN_UP_AFTER:
        _give_up(row, WebhookState.FAILING)


def _give_up(row: Webhook, state: WebhookState) -> None:
    if endpoints.turn_off(webhook=row, state=state):
        Webhook.objects.filter(pk=row.pk).update(announced_at=None)  # its owners are mailed


def _succeed(delivery: Delivery, answer: Answer, moment: datetime) -> None:
    _note(delivery, answer, moment)
    delivery.state, delivery.next_at = DeliveryState.DELIVERED, None
    delivery.save()


def _fail(delivery: Delivery, answer: Answer, moment: datetime, random: Callable[[], float]) -> None:
    _note(delivery, answer, moment)
    if delivery.state == DeliveryState.WAITING:
        delivery.next_at = retries.next_at(attempts=delivery.attempts, moment=moment, random=random)
        delivery.state = DeliveryState.WAITING if delivery.next_at else DeliveryState.FAILED
    delivery.save()


def _note(delivery: Delivery, answer: Answer, moment: datetime) -> None:
    delivery.attempts += 1
    delivery.tried_at, delivery.status, delivery.milliseconds = moment, answer.status, answer.milliseconds
    delivery.answer, delivery.error = answer.text, answer.error


def release(attempt: Attempt, *, moment: datetime) -> None:
    """End the claim, unless another worker has taken the webhook over."""
    ours = Q(pk=attempt.webhook, claimed_until=attempt.claimed_until)
    Webhook.objects.filter(ours).update(claimed_until=moment)
