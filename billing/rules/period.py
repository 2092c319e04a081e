"""Periods: half-open and in UTC, with borders at local midnights of the tenant's zone.

All month arithmetic of the product is here. A period is computed once from zone and anchor day and
then stored with what it bounds; a later change of zone moves no period that is already stored.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from billing.rules.errors import RuleError
from billing.rules.quotas import Every
from portal.excerpt import quoted
from portal.locales import ENGLISH, GERMAN, current

# Not strftime: its names follow the locale of the process.
_MONTHS = {
    ENGLISH: (
        *("January", "February", "March", "April", "May", "June"),
        *("July", "August", "September", "October", "November", "December"),
    ),
    GERMAN: (
        *("Januar", "Februar", "März", "April", "Mai", "Juni"),
        *("Juli", "August", "September", "Oktober", "November", "Dezember"),
    ),
}
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """The instants from `start` until just before `end`, both UTC and whole seconds, `start < end`."""

    start: datetime
    end: datetime
    whole: int = field(default=0, compare=False, repr=False)
    """Seconds of the period that a changed anchor day made this one of; 0: it is whole itself."""

    def __post_init__(self) -> None:
        for moment in (self.start, self.end):
            if moment.utcoffset() != timedelta(0) or moment.microsecond:
                raise RuleError("period-border", moment=moment.isoformat())
        if self.start >= self.end:
            raise RuleError("period-order", start=self.start, end=self.end)

    @property
    def seconds(self) -> int:
        """The elapsed seconds, which a change of clocks makes differ from 86,400 a local day."""
        return (self.end - self.start) // _SECOND

    @property
    def whole_seconds(self) -> int:
        """What amounts per period are meant for: a period of 17 days owes 17 of 31 parts of them."""
        return self.whole or self.seconds

    def contains(self, moment: datetime) -> bool:
        """Whether `moment` is in the period; its end is not, it belongs to what follows."""
        return self.start <= moment < self.end


def billing_period(at: datetime, *, zone: ZoneInfo, anchor_day: int) -> Period:
    """The billing period that contains `at`, an aware datetime of any zone (ValueError if naive)."""
    local = _aware(at).astimezone(zone)
    month = _ordinal(local.year, local.month)
    if at < _start(month, zone, anchor_day):
        month -= 1
    # Where clocks go back over midnight, the 30th can be read on the clock after the 1st has begun.
    elif at >= _start(month + 1, zone, anchor_day):
        month += 1
    return _period(month, zone, anchor_day)


def period_starting_in(year: int, month: int, *, zone: ZoneInfo, anchor_day: int) -> Period:
    """The billing period whose first local day is in that month: exactly one is."""
    return _period(_ordinal(year, month), zone, anchor_day)


def civil_days(day: date, every: Every) -> tuple[date, date]:
    """The days [first, end) of the day, week, month, quarter or year that holds `day`; weeks begin on Monday.

    ValueError for what is none of these.
    """
    match every:
        case Every.DAY:
            return day, day + timedelta(days=1)
        case Every.WEEK:
            monday = day - timedelta(days=day.weekday())
            return monday, monday + timedelta(days=7)
        case Every.MONTH | Every.QUARTER | Every.YEAR:
            months = {Every.MONTH: 1, Every.QUARTER: 3, Every.YEAR: 12}[every]
            first = (_ordinal(day.year, day.month)) // months * months
            return _first_day(first), _first_day(first + months)
    raise RuleError("period-not-of-calendar", every=every)


def _first_day(ordinal: int) -> date:
    return date(ordinal // 12, ordinal % 12 + 1, 1)


def midnight(day: date, *, zone: ZoneInfo) -> datetime:
    """The first instant of that day in the zone, in UTC: where a period that is anchored on it starts.

    East of Greenwich the first day that can be written begins before that; then the first instant there is.
    """
    try:
        return instant(datetime(day.year, day.month, day.day), zone=zone)  # noqa: DTZ001 - a clock on a wall, without a zone
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def newest_day(at: datetime) -> date:
    """The day that it is where days begin first, 14 hours before UTC: each later one is to come everywhere."""
    return (at.astimezone(UTC) + timedelta(hours=14)).date()


def day_after(at: datetime, *, zone: ZoneInfo) -> datetime:
    """The first instant of the local day that follows the one of `at`, in UTC (ValueError if `at` is naive)."""
    local = _aware(at).astimezone(zone)
    today = datetime(local.year, local.month, local.day)  # noqa: DTZ001 - a clock on a wall, without a zone
    midnight_after = instant(today + timedelta(days=1), zone=zone)
    return midnight_after if midnight_after > at else instant(today + timedelta(days=2), zone=zone)


def instant(local: datetime, *, zone: ZoneInfo) -> datetime:
    """The first instant, in UTC, at which clocks of the zone show the naive `local` or later: every border falls once.

    A time can happen twice (the first counts) or be skipped, alone or with a whole day; then it is the instant of
    the jump. zoneinfo reads a skipped time with the offset before (fold=0) or after (fold=1): the jump lies between
    the two readings.
    """
    reading = local.replace(tzinfo=zone).astimezone(UTC)
    if reading.astimezone(zone).replace(tzinfo=None) == local:
        return reading
    early = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    while reading - early > _SECOND:
        middle = early + (reading - early) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).replace(tzinfo=None) < local:
            early = middle
        else:
            reading = middle
    return reading


def parse_month(text: str) -> tuple[int, int]:
    """`"2017-10"` as `(2017, 10)`. ValueError with a sentence for people otherwise."""
    match = re.fullmatch(r"([0-9]{4})-([0-9]{2})", text)
    if not match:
        raise RuleError("month-unreadable", text=quoted(text))
    year, month = int(match[1]), int(match[2])
    if not 1 <= month <= 12 or not 1970 <= year <= 9998:
        raise RuleError("month-unknown", text=text)
    return year, month


def shifted(month: tuple[int, int], by: int) -> tuple[int, int]:
    """The month that comes `by` months later, or earlier where that is below zero."""
    ordinal = _ordinal(*month) + by
    return ordinal // 12, ordinal % 12 + 1


def last_day(end: datetime, *, zone: ZoneInfo) -> date:
    """The civil day of the last second before `end`; where clocks skip midnight, that is still the day before."""
    return (_aware(end).astimezone(UTC) - _SECOND).astimezone(zone).date()


def label(period: Period, zone: ZoneInfo) -> str:
    """How people call the period: "October 2017" for a whole calendar month, else its first and last day.

    In the language of whoever reads it.
    """
    first = period.start.astimezone(zone)
    last = (period.end - _SECOND).astimezone(zone)
    if period == period_starting_in(first.year, first.month, zone=zone, anchor_day=1):
        return f"{_MONTHS[current()][first.month - 1]} {first.year}"
    if first.date() == last.date():
        return _day(last)
    opening = _day(first) if first.year != last.year else _day(first).removesuffix(f"{first.year}").rstrip()
    return f"{opening} \N{EN DASH} {_day(last)}"


def unbroken(periods: Iterable[Period]) -> list[list[Period]]:
    """Periods in order, told apart where one does not begin where the one before it ends."""
    runs: list[list[Period]] = []
    for period in periods:
        if runs and runs[-1][-1].end == period.start:
            runs[-1].append(period)
        else:
            runs.append([period])
    return runs


def _period(month: int, zone: ZoneInfo, anchor_day: int) -> Period:
    return Period(_start(month, zone, anchor_day), _start(month + 1, zone, anchor_day))


def _start(ordinal: int, zone: ZoneInfo, anchor_day: int) -> datetime:
    """The start of the period of that month. Always from the anchor itself, so that it never drifts."""
    if not 1 <= anchor_day <= 31:
        raise RuleError("anchor-day", day=anchor_day)
    year, month = divmod(ordinal, 12)
    last_day = calendar.monthrange(year, month + 1)[1]
    return instant(datetime(year, month + 1, min(anchor_day, last_day)), zone=zone)  # noqa: DTZ001 - a clock on a wall, without a zone


def _ordinal(year: int, month: int) -> int:
    if not 1 <= month <= 12:
        raise RuleError("month-number", month=month)
    return year * 12 + month - 1


def _aware(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise RuleError("moment-without-zone", moment=moment.isoformat())
    return moment


def _day(moment: datetime) -> str:
    if current() == GERMAN:
        return f"{moment:%d.%m.}{moment.year}"
    return f"{moment.day} {_MONTHS[ENGLISH][moment.month - 1][:3]} {moment.year}"
