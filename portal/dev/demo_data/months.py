"""The months of the demonstration."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

MONTHS = 12  # before the running one; the last of them is ready to be closed


def months_before(moment: datetime) -> list[datetime]:
    """The first instants of the MONTHS months before the one of `moment`, and of that one; UTC, the oldest first."""
    first = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    months = [first]
    while len(months) <= MONTHS:
        months.insert(0, (months[0] - timedelta(days=1)).replace(day=1))
    return months


def suspended_at(months: Sequence[datetime]) -> datetime:
    """When Orbit Robotics submits nothing any more: its invoice of the month before is unpaid for long enough."""
    return months[11] + timedelta(days=10, hours=9)
