"""When in a week a price holds: windows of local time, whatever clocks do.

A window has a beginning and an end on the clock. Each is an instant of every day: of a time that comes twice the
first counts, and one that is skipped is the instant of the jump. So a night from 22:00 to 06:00 has 7, 8 or 9 hours,
and no second is in it twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from billing.rules.errors import RuleError
from billing.rules.period import instant
from portal.excerpt import quoted

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = 86_400
EVERY_DAY = "mon-sun"
LONGEST = 8 * DAY
"""No stretch in which the same windows are open is cut by less: each window comes every week, and clocks may change."""

_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)
_KEYS = {"days", "from", "to"}


class HoursZone(StrEnum):
    """Whose clock it is."""

    TENANT = "tenant"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Window:
    """On these days (0 is Monday) from `start` until just before `end`, in seconds of the clock.

    One that ends no later than it starts ends on the next day; it belongs to the day on which it starts.
    """

    days: tuple[int, ...]
    start: int
    end: int

    def __post_init__(self) -> None:
        if not self.days or not 0 <= self.start < DAY or not 0 < self.end <= DAY:
            raise RuleError("window-range")
        if self.start == self.end:
            raise RuleError("window-empty", start=_clock(self.start))

    def __str__(self) -> str:
        return f"{_named(self.days)} {_clock(self.start)}-{_clock(self.end)}"


@dataclass(frozen=True, slots=True)
class Hours:
    """The windows in which a price holds, told by one clock. ValueError without any."""

    windows: tuple[Window, ...]
    zone: HoursZone = HoursZone.TENANT

    def __post_init__(self) -> None:
        if not self.windows:
            raise RuleError("hours-empty")

    def __str__(self) -> str:
        """`mon-fri 22:00-06:00 + sat-sun 00:00-24:00`, with the clock where it is not the tenant's."""
        text = " + ".join(str(window) for window in self.windows)
        return f"{text} by the cluster's clock" if self.zone is HoursZone.CLUSTER else text

    @property
    def text(self) -> str:
        """As an invoice says it: `Mon–Fri 22:00–06:00 and Sat–Sun 00:00–24:00`."""
        text = re.sub(rf"\b({'|'.join(DAYS)})\b", lambda word: word[0].capitalize(), str(self))
        return text.replace("-", "\N{EN DASH}").replace(",", ", ").replace(" + ", " and ")

    def between(self, since: int, until: int, *, zone: ZoneInfo) -> list[tuple[int, int]]:
        """The stretches of [since, until) in which a window is open, in order and apart. Epoch seconds."""
        stretches: list[tuple[int, int]] = []
        for start, end in sorted(self._windows(since, until, zone)):
            if stretches and start <= stretches[-1][1]:
                stretches[-1] = stretches[-1][0], max(end, stretches[-1][1])
            else:
                stretches.append((start, end))
        return stretches

    def _windows(self, since: int, until: int, zone: ZoneInfo) -> Iterator[tuple[int, int]]:
        day = datetime.fromtimestamp(since, UTC).date() - timedelta(days=3)
        last = datetime.fromtimestamp(until, UTC).date() + timedelta(days=2)
        while day <= last:
            for window in self.windows:
                if day.weekday() not in window.days:
                    continue
                begins = _at(day, window.start, zone)
                ends = _at(day + timedelta(days=window.end <= window.start), window.end, zone)
                if max(begins, since) < min(ends, until):
                    yield max(begins, since), min(ends, until)
            day += timedelta(days=1)


def slices(
    hours: Mapping[int, Sequence[tuple[int, int]]], since: int, until: int
) -> list[tuple[int, int, tuple[int, ...]]]:
    """[since, until) cut wherever one of these opens or closes: (from, to, which are open), in order without gaps."""
    borders = sorted({since, until, *(at for spans in hours.values() for one in spans for at in one)})
    opens: dict[int, list[int]] = {}
    closes: dict[int, list[int]] = {}
    for key, spans in hours.items():
        for start, end in spans:
            opens.setdefault(start, []).append(key)
            closes.setdefault(end, []).append(key)
    cuts, open_keys = [], set[int]()
    for start, end in pairwise(borders):
        open_keys = (open_keys - set(closes.get(start, ()))) | set(opens.get(start, ()))
        cuts.append((start, end, tuple(sorted(open_keys))))
    return cuts


def of_terms(terms: Mapping[str, Any]) -> Hours | None:
    """Hours as they are stored: {"zone": "tenant", "windows": [{"days": "mon-fri", "from": "22:00", "to": "06:00"}]}.

    None for {}. ValueError with a sentence for people where they cannot be.
    """
    if not terms:
        return None
    windows = terms.get("windows")
    if set(terms) - {"zone", "windows"} or not isinstance(windows, list):
        raise RuleError("hours-form")
    zone = terms.get("zone", HoursZone.TENANT)
    if zone not in list(HoursZone):
        raise RuleError("hours-zone", zone=quoted(zone), allowed=", ".join(HoursZone))
    return Hours(tuple(_window(window) for window in windows), HoursZone(zone))


def as_terms(hours: Hours | None) -> dict[str, Any]:
    """As `of_terms` reads them."""
    if hours is None:
        return {}
    return {
        "zone": hours.zone.value,
        "windows": [
            {"days": _named(window.days), "from": _clock(window.start), "to": _clock(window.end)}
            for window in hours.windows
        ],
    }


def _window(data: Mapping[str, Any]) -> Window:
    if (
        not isinstance(data, dict)
        or set(data) - _KEYS
        or not all(isinstance(value, str) for value in data.values())
    ):
        raise RuleError("window-form")
    return Window(
        days_of(data.get("days", EVERY_DAY)),
        seconds_of(data.get("from", "00:00")),
        seconds_of(data.get("to", "24:00")) or DAY,
    )


def days_of(text: str) -> tuple[int, ...]:
    """`"mon-fri"`, `"sat, sun"`, `"fri-mon"` as days of the week, 0 being Monday. ValueError otherwise."""
    days: set[int] = set()
    for part in text.lower().split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if first not in DAYS or (dash and last not in DAYS):
            raise RuleError("weekdays", text=quoted(text))
        start = DAYS.index(first)
        count = (DAYS.index(last) - start) % 7 if dash else 0
        days |= {(start + day) % 7 for day in range(count + 1)}
    return tuple(sorted(days))


def seconds_of(text: str) -> int:
    """`"22:00"` or `"22:00:30"`, up to `"24:00"`, as seconds of the clock. ValueError otherwise."""
    match = _CLOCK.fullmatch(text)
    hour, minute, second = (int(part or 0) for part in match.groups()) if match else (99, 0, 0)
    if minute > 59 or second > 59 or (hour * 60 + minute) * 60 + second > DAY:
        raise RuleError("time-of-day", text=quoted(text))
    return (hour * 60 + minute) * 60 + second


def _named(days: Sequence[int]) -> str:
    """`mon-fri`, `mon,wed-fri`: as `days_of` reads them."""
    runs: list[list[int]] = []
    for day in days:
        if runs and day == runs[-1][-1] + 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    words = []
    for run in runs:
        words += [f"{DAYS[run[0]]}-{DAYS[run[-1]]}"] if len(run) > 1 else [DAYS[run[0]]]
    return ",".join(words)


def _clock(seconds: int) -> str:
    hour, minute, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{hour:02d}:{minute:02d}" + (f":{second:02d}" if second else "")


def _at(day: date, seconds: int, zone: ZoneInfo) -> int:
    local = datetime(day.year, day.month, day.day) + timedelta(seconds=seconds)  # noqa: DTZ001 - a clock on a wall, without a zone
    return int(instant(local, zone=zone).timestamp())
