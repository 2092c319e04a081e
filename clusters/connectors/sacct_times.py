"""Local times of a cluster as UTC epoch seconds, exact over clock changes.

A day whose offset never changes is one addition, so it is looked up; only the two days a year on which
clocks change are worked out time by time.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from clusters.connectors.sacct_fields import UnreadableError
from portal.excerpt import quoted

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

UNSET = frozenset({"", "unknown", "none", "none assigned"})
"""What sacct prints, in any case of letters, for a time that there is not (yet)."""

FIRST_YEAR, LAST_YEAR = 1990, 2200
LATEST = 7_289_654_400  # 2201-01-01T00:00:00Z

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)", re.ASCII)


class ClockChangeError(LookupError):
    """On this day the offset changes, so a local time alone may be no instant or two."""


class _TimesOfDay(dict[str, int]):
    """`T10:30:41` → seconds after midnight; at most 86,400 entries."""

    def __missing__(self, text: str) -> int:
        match = _TIME.fullmatch(text)
        if match is None:
            raise UnreadableError("unreadable-time", f"{quoted(text)} is not a time of day.")
        seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
        self[text] = seconds
        return seconds


class _Midnights(dict[str, int]):
    """`2017-09-04` → epoch of local midnight, for days of one offset; at most 77,067 entries."""

    def __init__(self, zone: ZoneInfo) -> None:
        super().__init__()
        self.zone = zone

    def __missing__(self, text: str) -> int:
        day = _day(text)
        edges = (time.min, time(23, 59, 59))
        offsets = {
            datetime.combine(day, edge, self.zone).replace(fold=fold).utcoffset()
            for edge in edges
            for fold in (0, 1)
        }
        offset = offsets.pop()
        if offsets or offset is None:
            raise ClockChangeError(text)
        epoch = (day.toordinal() - _EPOCH_DAY) * 86_400 - offset // timedelta(seconds=1)
        self[text] = epoch
        return epoch


def _day(text: str) -> date:
    if _DATE.fullmatch(text) is None:
        raise UnreadableError("unreadable-time", f"{quoted(text)} is not a date like 2026-01-31.")
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise UnreadableError("unreadable-time", f"{quoted(text)} is not in the calendar.") from error
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise UnreadableError("absurd-date", f"{text} lies outside the years {FIRST_YEAR} to {LAST_YEAR}.")
    return day


class Clock:
    """Reads the times of one cluster.

    `midnights[text[:10]] + times[text[10:]]` is the quick way; it raises `UnreadableError` for what is no
    time and `ClockChangeError` where `moments` must be asked.
    """

    times = _TimesOfDay()

    def __init__(self, zone: ZoneInfo) -> None:
        self.zone = zone
        self.midnights = _Midnights(zone)

    def moments(self, column: str, text: str) -> tuple[int, ...]:
        """The epoch seconds that a local time can mean: none if unset, two in a fold, earliest first.

        Raises `UnreadableError` for what is no time, and for a time that the clocks skipped.
        """
        if text.lower() in UNSET:
            return ()
        try:
            return (self.midnights[text[:10]] + self.times[text[10:]],)
        except UnreadableError as unreadable:
            raise UnreadableError(
                unreadable.code, f"{column} {quoted(text)} cannot be used: {unreadable}"
            ) from None
        except ClockChangeError:
            instants = self._on_change_day(text)
        if not instants:
            raise UnreadableError(
                "skipped-time",
                f"{column} {text} does not exist in {self.zone.key}: clocks were put forward over it. "
                "Check the cluster's time zone, or export again with TZ=UTC.",
            )
        return instants

    def _on_change_day(self, text: str) -> tuple[int, ...]:
        local = datetime.combine(_day(text[:10]), time.min) + timedelta(seconds=self.times[text[10:]])
        instants: set[int] = set()
        for fold in (0, 1):
            instant = local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)
            if instant.astimezone(self.zone).replace(tzinfo=None, fold=0) == local:
                instants.add((instant - _EPOCH) // timedelta(seconds=1))
        return tuple(sorted(instants))

    def loosely(self, text: str) -> int | None:
        """The earliest moment a time can mean; None for anything else. Only for what bills nothing."""
        try:
            return min(self.moments("", text), default=None)
        except UnreadableError:
            return None
