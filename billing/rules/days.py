"""By which clock a tenant's days go: in a billing period by the period's own zone, elsewhere by the tenant's.

A tenant that moves keeps the periods that it has. If days went by its present zone, a price or a fee that began
with a period would begin some hours beside it from then on, and change what was billed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from billing.rules.period import Period, midnight

ALWAYS = datetime.min.replace(tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Days:
    """The days of one tenant. `others` are its periods of another zone, in order, none overlapping."""

    zone: ZoneInfo
    others: Sequence[tuple[Period, ZoneInfo]] = ()

    def zone_at(self, moment: datetime) -> ZoneInfo:
        """By whose clock the day of that instant goes."""
        return next((zone for period, zone in self.others if period.contains(moment)), self.zone)

    def day_of(self, moment: datetime) -> date:
        """The civil day of that instant."""
        return moment.astimezone(self.zone_at(moment)).date()

    def between(self, first: date | None, until: date | None) -> list[tuple[datetime, datetime]]:
        """The instants [low, high) whose day is in [first, until), None being without an end; in order.

        They are more than one where a move across the date line has a day come twice.
        """
        stretches: list[tuple[datetime, datetime]] = []
        for since, end, zone in self._stretches():
            low = since if first is None else max(since, midnight(first, zone=zone))
            high = end if until is None else min(end, midnight(until, zone=zone))
            if low < high and stretches and stretches[-1][1] == low:
                stretches[-1] = (stretches[-1][0], high)
            elif low < high:
                stretches.append((low, high))
        return stretches

    def _stretches(self) -> Iterator[tuple[datetime, datetime, ZoneInfo]]:
        at = ALWAYS
        for period, zone in self.others:
            yield at, period.start, self.zone
            yield period.start, period.end, zone
            at = period.end
        yield at, NEVER, self.zone
