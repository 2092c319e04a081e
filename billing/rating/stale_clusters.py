"""Clusters whose usage has not moved on for long: events, once for each time."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from clusters.models import Connection
from portal.core.events import events
from portal.core.events.events import Fact
from portal.core.events.models import EventType

STALE = timedelta(hours=2)  # or three of its intervals, where these are longer


@transaction.atomic
def record_stale(*, moment: datetime) -> None:
    """Write an event for each cluster that is pulled and whose watermark is that old: once until it moves.

    One that was never read is not stale: its connection is being set up.
    """
    rows = Connection.objects.filter(enabled=True, cluster__complete_through__lt=moment - STALE)
    events.record_many(
        Fact(
            type=EventType.CLUSTER_STALE,
            kind="clu",
            key=row.cluster_id,
            state="stale",
            tenant=None,
            cause=f"{row.cluster_id} {row.cluster.complete_through:%Y%m%d%H%M%S}",
        )
        for row in rows.select_related("cluster").order_by("cluster")
        if row.cluster.complete_through is not None
        and row.cluster.complete_through < moment - timedelta(seconds=3 * row.every)
    )
