"""Ranges of days in addresses: `from` and `through`, both included, and the earlier range beside them."""

from __future__ import annotations

from datetime import date, timedelta
from enum import StrEnum

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.queries.cost_explorer import Days
from billing.rules.period import shifted
from portal.days import is_in_range

DAY = timedelta(days=1)
NO_DAY = gettext_noop("Enter both days like 2026-03-01, in the years 1971 to 8999.")
BACKWARDS = gettext_noop("The range ends before it begins. Choose a later last day.")


class Compared(StrEnum):
    """What a range is compared with."""

    BEFORE = "before"
    MONTH = "month"
    YEAR = "year"
    OTHER = "other"


class DayRangeError(ValueError):
    """What was typed is no range of days; the message is a sentence for people, in their language."""


def read_days(query: QueryDict, first: str = "from", last: str = "through") -> Days | None:
    """The range that the address names by these parameters; None where it names none. Raises DayRangeError."""
    texts = query.get(first, ""), query.get(last, "")
    if not any(texts):
        return None
    try:
        days = [date.fromisoformat(text) for text in texts]
    except ValueError:
        raise DayRangeError(_(NO_DAY)) from None
    if not all(map(is_in_range, days)):
        raise DayRangeError(_(NO_DAY))
    if days[0] > days[1]:
        raise DayRangeError(_(BACKWARDS))
    return Days(days[0], days[1] + DAY)


def earlier(days: Days, compared: Compared) -> Days:
    """The range before it, of as many days, or months where it is whole months; or the same a month or year ago."""
    if compared is Compared.MONTH or compared is Compared.YEAR:
        return _months_ago(days, 1 if compared is Compared.MONTH else 12)
    if days.first.day == days.end.day == 1:
        months = (days.end.year - days.first.year) * 12 + days.end.month - days.first.month
        return _months_ago(days, months)
    return Days(days.first - (days.end - days.first), days.first)


def _months_ago(days: Days, months: int) -> Days:
    """A day that its month does not have is the last one that it has; the range keeps a day at least."""
    first, end = _ago(days.first, months), _ago(days.end, months)
    return Days(first, max(end, first + DAY))


def _ago(day: date, months: int) -> date:
    year, month = shifted((day.year, day.month), -months)
    after = shifted((year, month), 1)
    last = date(*after, 1) - DAY
    return min(date(year, month, 1) + timedelta(days=day.day - 1), last)
