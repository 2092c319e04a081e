"""When a job had its resources: local times as UTC epoch seconds, exact over clock changes, and one row's Submit,
Start, End, elapsed and suspended time reconciled.

A day whose offset never changes is one addition, so it is looked up; only the two days a year on which clocks change
are worked out time by time."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple

from clusters.connectors.base import UnreadableError
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
            raise UnreadableError("unreadable-time", column="Time", text=quoted(text))
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
        raise UnreadableError("unreadable-time", column="Time", text=quoted(text))
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise UnreadableError("unreadable-time", column="Time", text=quoted(text)) from error
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise UnreadableError("absurd-date", column="Time", text=text, first=FIRST_YEAR, last=LAST_YEAR)
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
            unreadable.values.update(column=column, text=quoted(text))
            raise
        except ClockChangeError:
            instants = self._on_change_day(text)
        if not instants:
            raise UnreadableError("skipped-time", column=column, text=text, zone=self.zone.key)
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


class Span(NamedTuple):
    """Epoch seconds; `proven` is a moment at which the scheduler was still writing about this row."""

    submitted: int
    started: int | None
    ended: int | None
    proven: int | None
    note: str = ""


class Times(NamedTuple):
    """A row's own words for its times, and its lengths in seconds."""

    submit: str
    start: str
    end: str
    elapsed: int | None
    suspended: int


def read_span(clock: Clock, times: Times, *, state: str) -> Span:
    """Raises `UnreadableError` where the times contradict each other or cannot be told.

    The submission is part of a row's identity, so its reading must not depend on whether the job still
    runs: in a fold it is Start's reading if both are the same text, else the earlier one.
    """
    running = state == "RUNNING"
    submits = clock.moments("Submit", times.submit)
    starts = clock.moments("Start", times.start)
    ends = () if running else clock.moments("End", times.end)
    if not submits:
        raise UnreadableError("no-submit")
    if not starts:
        span = _never_started(times, submits, ends, running=running, waiting=state == "PENDING")
    elif not ends:
        span = _open(times, submits, starts)
    else:
        span = _closed(times, submits, starts, ends)
    if max(span.ended or 0, span.proven or 0) > LATEST:
        raise UnreadableError("absurd-length", last=LAST_YEAR)
    return span


def _never_started(
    times: Times, submits: tuple[int, ...], ends: tuple[int, ...], *, running: bool, waiting: bool
) -> Span:
    if running or times.elapsed:
        raise UnreadableError("no-start")
    if ends and not waiting:
        return Span(submits[0], ends[0], ends[0], ends[0])
    if len(submits) > 1:
        raise UnreadableError("clock-change", times=f"Submit {times.submit}")
    return Span(submits[0], None, None, None)


def _open(times: Times, submits: tuple[int, ...], starts: tuple[int, ...]) -> Span:
    if len(starts) > 1:
        raise UnreadableError("clock-change", times=f"Start {times.start}")
    start = starts[0]
    proven = None if times.elapsed is None else start + times.elapsed + times.suspended
    submitted = start if times.submit == times.start else submits[0]
    if submitted > start:
        return Span(submitted, submitted, None, proven and max(proven, submitted), "resized")
    return Span(submitted, start, None, proven)


def _closed(times: Times, submits: tuple[int, ...], starts: tuple[int, ...], ends: tuple[int, ...]) -> Span:
    same = times.submit == times.start
    if not same:  # nothing starts before it was submitted, if it has the choice
        starts = tuple(start for start in starts if start >= submits[0]) or starts
    start, end, note = _fitting(times, starts, ends)
    submitted = start if same else submits[0]
    if submitted > start:
        return _resized(times, submitted, start, end)
    if note:
        end = start + (times.elapsed or 0) + times.suspended
    return Span(submitted, start, end, end, note)


def _fitting(times: Times, starts: tuple[int, ...], ends: tuple[int, ...]) -> tuple[int, int, str]:
    """The earliest reading whose length is the elapsed time; noted, where none is."""
    pairs = [(start, end) for start in starts for end in ends]
    if times.elapsed is not None:
        length = times.elapsed + times.suspended
        fitting = [pair for pair in pairs if pair[1] - pair[0] == length]
        return (*min(fitting), "") if fitting else (*min(pairs), "elapsed")
    if len(pairs) > 1:
        raise UnreadableError("clock-change", times=f"{times.start} to {times.end}")
    start, end = pairs[0]
    if end < start:
        raise UnreadableError("end-before-start", start=times.start, end=times.end)
    if end - start < times.suspended:
        raise UnreadableError("suspended", suspended=times.suspended)
    return start, end, ""


def _resized(times: Times, submitted: int, start: int, end: int) -> Span:
    """A row that starts before its submission continues a resized job: older Slurm gives it the first start.

    The earlier row holds the time until this submission, so this one begins there.
    """
    lengths = (end - start, end - submitted)
    if times.elapsed is None or times.elapsed + times.suspended in lengths:
        end = max(end, submitted)
    else:
        end = submitted + times.elapsed + times.suspended
    return Span(submitted, submitted, end, end, "resized")
