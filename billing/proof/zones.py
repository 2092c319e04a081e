"""Whether days begin at the same second here and in the database.

Periods and terms are cut by Python's zones, prices by PostgreSQL's. Each has a time-zone database of its own, and where
a law changed after one of them was made they differ by an hour: usage of that hour would have a price of another day.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from billing.rules.period import midnight

NAME = "days begin at the same second here and in the database"

_DAYS = """
SELECT p.timezone, d.day::date, day_start(d.day::date, p.timezone)
FROM (SELECT timezone, min(start) AS first, max("end") AS last FROM billing_billingperiod GROUP BY timezone) p,
     generate_series(greatest(p.first, p.last - interval '800 days')::date, p.last::date, '1 day') AS d (day)
ORDER BY p.timezone, d.day
"""
"""The days of the newest periods of each zone, some two years of them: those of older ones are billed."""


def list_different(cursor: Any) -> list[str]:
    """By zone the first day that begins at another second here."""
    cursor.execute(_DAYS)
    different: dict[str, str] = {}
    for zone, day, start in cursor.fetchall():
        here, there = midnight(day, zone=ZoneInfo(zone)), datetime.fromtimestamp(start, UTC)
        if here != there:
            seconds = f"{day} begins at {here:%Y-%m-%d %H:%M} UTC here, at {there:%H:%M} in the database"
            different.setdefault(zone, f"{zone}: {seconds}; update the time zones of the older one")
    return list(different.values())[:10]
