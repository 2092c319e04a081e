"""What is to be delivered: rows written with the places of their events, sent again on request, deleted in time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from portal.core.events import numbering
from portal.core.webhooks.addresses import WebhookError
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook, WebhookState
from portal.sql_files import Statements

TEST = "webhook.test"
"""The type of an event that tries a webhook out: nothing happened."""
RETENTION = timedelta(days=30)
MOST_TESTS = 20  # that wait at a time
MOST_DELETED = 10_000  # in one transaction
sql = Statements(__file__, "deliveries.sql")


@transaction.atomic
def place_events(*, moment: datetime) -> bool:
    """Give committed events their places, and write a delivery for each webhook that wants one; whether any had none.

    Both commit together: an event that has a place has its deliveries.
    """
    numbers = numbering.number_committed()
    if numbers is None:
        return False
    with connection.cursor() as cursor:
        cursor.execute(sql.CREATE, {"first": numbers[0], "last": numbers[1], "moment": moment})
    return True


@transaction.atomic
def send_test(*, webhook: Webhook, moment: datetime) -> Delivery:
    """Have a test event sent. Each call sends another. Raises WebhookError where the webhook is off."""
    row = _active(webhook)
    if Delivery.objects.waiting().filter(webhook=row, event_number=None).count() >= MOST_TESTS:
        raise WebhookError("too-many-waiting", name=row.name, most=MOST_TESTS)
    return Delivery.objects.create(
        webhook=row, tenant=row.tenant, type=TEST, created_at=moment, next_at=moment
    )


@transaction.atomic
def resend(*, delivery: Delivery, moment: datetime) -> Delivery:
    """Have it sent again now, with all its attempts, under the same id. Raises WebhookError where its webhook is off.

    Called again before that, it is sent once.
    """
    _active(delivery.webhook)
    row = Delivery.objects.select_for_update().get(pk=delivery.pk)
    row.state, row.attempts, row.next_at = DeliveryState.WAITING, 0, moment
    row.save(update_fields=["state", "attempts", "next_at"])
    return row


@transaction.atomic
def resend_since(*, webhook: Webhook, since: datetime, undelivered_only: bool, moment: datetime) -> int:
    """Have all events since then sent, those from while the webhook was off, too; how many.

    `undelivered_only`: without those that were delivered. Events are stored for 90 days. Called again before they are
    sent, each is sent once. Raises WebhookError where the webhook is off.
    """
    row = _active(webhook)
    values: dict[str, Any] = {
        "webhook": row.pk,
        "start": since,
        "delivered": not undelivered_only,
        "moment": moment,
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.RESEND, values)
        return int(cursor.rowcount)


def _active(webhook: Webhook) -> Webhook:
    """The webhook, which nobody turns off meanwhile."""
    row = Webhook.objects.select_for_update(of=["self"]).select_related("tenant").get(pk=webhook.pk)
    if row.state != WebhookState.ACTIVE:
        raise WebhookError("not-active", name=row.name)
    return row


def forget_old(*, moment: datetime) -> int:
    """Delete deliveries that ended and are older than 30 days, some thousand at a time; how many."""
    old = Delivery.objects.filter(created_at__lt=moment - RETENTION).exclude(state=DeliveryState.WAITING)
    gone = 0
    while keys := list(old.order_by("created_at").values_list("pk", flat=True)[:MOST_DELETED]):
        gone += Delivery.objects.filter(pk__in=keys).delete()[0]
    return gone
