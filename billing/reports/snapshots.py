"""When snapshots are computed anew, how many an owner may have computed, and how long they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Q, QuerySet, Sum

from portal.core.outbox import outbox

REST: Final = timedelta(minutes=5)
"""A snapshot is not renewed before."""
TIMES: Final = 100
"""Nor before it has rested so many times as long as it took, so renewing takes a hundredth of a processor at most."""
RETENTION: Final = timedelta(days=35)
"""After that a snapshot that nobody looked at is deleted."""
WAITING: Final = 5
"""Snapshots of an owner that wait for a worker at once; further ones wait for the page to be asked for again."""
STUCK: Final = timedelta(hours=1)
"""After that a snapshot that waits is requested again, and takes no place from others: its task has failed."""
HOURLY: Final = 600
"""Seconds in an hour after which no more for an owner is computed: documents wait for the same worker."""
MOST_KEPT: Final = 100
"""Snapshots of an owner; the oldest are deleted."""


def is_due(as_of: datetime | None, seconds: int, moment: datetime) -> bool:
    return as_of is None or moment - as_of >= max(REST, TIMES * timedelta(seconds=seconds))


def is_waiting(requested_at: datetime | None, moment: datetime) -> bool:
    return requested_at is not None and moment - requested_at < STUCK


def request(
    rows: QuerySet[Any], key: Mapping[str, Any], *, task: str, moment: datetime, **values: Any
) -> bool:
    """Have a worker compute the one of an owner's `rows` with that key; whether it is now. Where its owner may write.

    Again, and by two at once, it is requested once. `values`: of its other fields.
    """
    spent = rows.filter(as_of__gt=moment - timedelta(hours=1)).aggregate(seconds=Sum("seconds"))
    if rows.filter(requested_at__gt=moment - STUCK).count() >= WAITING or (spent["seconds"] or 0) >= HOURLY:
        return False
    row, _made = rows.get_or_create(**key, defaults=values)
    is_idle = Q(requested_at=None) | Q(requested_at__lte=moment - STUCK)
    if rows.filter(is_idle, pk=row.pk).update(requested_at=moment):
        outbox.add(task, snapshot_id=row.pk)
    computed = rows.filter(requested_at=None)
    computed.exclude(pk__in=computed.order_by("-as_of").values("pk")[: MOST_KEPT - 1]).delete()
    return True


def forget_old(rows: QuerySet[Any], *, moment: datetime) -> None:
    """Delete those that nobody has looked at for RETENTION."""
    rows.filter(requested_at=None, as_of__lt=moment - RETENTION).delete()
