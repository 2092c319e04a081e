"""What waits to be delivered, and what fails: what operators are told of when webhooks pile up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min, Q

from portal.core.webhooks.models import Delivery, Webhook, WebhookState


@dataclass(frozen=True, slots=True)
class Backlog:
    """`oldest_due`: since when the oldest delivery is due for which a worker would be at work; None where none is."""

    waiting: int  # deliveries, those that come again included
    failing: int  # webhooks that are on, and whose last attempt failed
    given_up: int  # webhooks that were turned off because of what their endpoints answered
    oldest_due: datetime | None


def backlog(*, moment: datetime) -> Backlog:
    """Two queries. A webhook that fails or was asked to pause delays only itself, so it has no part in `oldest_due`."""
    working = Q(webhook__failing_since=None) & ~Q(webhook__paused_until__gt=moment)
    due = Q(next_at__lte=moment, webhook__state=WebhookState.ACTIVE) & working
    sums = Delivery.objects.waiting().aggregate(waiting=Count("pk"), oldest_due=Min("next_at", filter=due))
    given_up = Q(state__in=[WebhookState.GONE, WebhookState.FAILING])
    webhooks = Webhook.objects.aggregate(
        failing=Count("pk", filter=Q(state=WebhookState.ACTIVE, failing_since__isnull=False)),
        given_up=Count("pk", filter=given_up),
    )
    return Backlog(sums["waiting"], webhooks["failing"], webhooks["given_up"], sums["oldest_due"])
