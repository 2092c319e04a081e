"""What the outbox has not done yet: what an operator is told of when work piles up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min, Q

from portal.core.outbox.models import OutboxMessage


@dataclass(frozen=True, slots=True)
class Backlog:
    """Undone messages of one task."""

    task: str
    waiting: int  # all of them
    failed: int  # those that were tried already
    oldest: datetime


def backlog() -> list[Backlog]:
    """By task; none where nothing is left to do. One query, over what is undone."""
    rows = (
        OutboxMessage.objects.undone()
        .values_list("task")
        .annotate(waiting=Count("pk"), failed=Count("pk", filter=Q(attempts__gt=0)), oldest=Min("created_at"))
        .order_by("task")
    )
    return [Backlog(*row) for row in rows]
