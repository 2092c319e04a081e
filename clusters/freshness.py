"""How old what is known of a tenant's clusters is, and how often it was older than it should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from clusters.usage import Mark
from portal.sql_files import Statements

sql = Statements(__file__, "freshness.sql")

LATE = timedelta(hours=2)
"""That a cluster may be behind before pages say so aloud. The objective in deploy/prometheus has the same."""
SPAN = timedelta(days=30)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Delay:
    """A time in which a cluster was behind; `until` is the present where it still is."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Freshness:
    """Of one cluster. `every`: seconds from pull to pull, also while that is paused; None: its usage comes as files, by
    hand, or is pushed.
    """

    cluster: str
    complete_through: datetime | None
    every: int | None
    paused: bool
    used_through: datetime | None  # of utilisation that another source than the usage tells
    since: datetime | None  # the span that was looked at begins; None: it was never read
    delays: Sequence[Delay]  # the newest first

    def is_late(self, moment: datetime) -> bool:
        """Also where it was never read. What nobody pulls is never late."""
        if self.every is None:
            return False
        allowed = max(LATE, 2 * timedelta(seconds=self.every))
        return self.complete_through is None or moment - self.complete_through > allowed

    def per_mille(self, moment: datetime) -> int | None:
        """Of the span, how long it was up to date, rounded down: 1000 is all of it. None where nothing can be said."""
        if self.every is None or self.since is None or moment <= self.since:
            return None
        behind = sum((delay.until - delay.since for delay in self.delays), timedelta())
        whole = moment - self.since
        return 1000 * ((whole - behind) // SECOND) // max(whole // SECOND, 1)


def freshness(marks: Sequence[Mark], *, moment: datetime) -> list[Freshness]:
    """Of these clusters, by name, over the last 30 days. In the scope of acting for the tenant. One query."""
    through = {mark.cluster: mark.complete_through for mark in marks}
    values: dict[str, Any] = {
        "clusters": list(through),
        "since": int((moment - SPAN).timestamp()),
        "moment": moment,
        "late": LATE // SECOND,
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.FRESHNESS, values)
        return [
            Freshness(name, through[name], every, paused, used, since, list(map(Delay, begins, ends)))
            for name, every, paused, used, since, begins, ends in cursor.fetchall()
        ]
