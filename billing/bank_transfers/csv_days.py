"""Days in CSV bank statements: 08/04/2026 is in April or in August, and the whole file has to say which."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date

from billing.bank_transfers.entities import StatementError
from billing.rules.bank_entries import EntryError
from portal.excerpt import quoted

_ISO = re.compile(r"(\d{4})([-/]?)(\d{2})\2(\d{2})", re.ASCII)
_POINTS = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4}|\d{2})", re.ASCII)
_EITHER = re.compile(r"(\d{1,2})([/-])(\d{1,2})\2(\d{4}|\d{2})", re.ASCII)
_TIME = re.compile(r"[T ,]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?$", re.ASCII)
_MONTHS = 12


def find_order(texts: Iterable[str], order: str) -> str:
    """ "dmy" or "mdy", as said or as the days of the file leave no other; "" where none needs it.

    StatementError where the file leaves it open, or has both.
    """
    matches = [match for text in texts if (match := _EITHER.fullmatch(_TIME.sub("", text)))]
    if order or not matches:
        return order
    day_first = any(int(match[1]) > _MONTHS for match in matches)
    month_first = any(int(match[3]) > _MONTHS for match in matches)
    if day_first == month_first:
        raise StatementError("csv-day-order", day=matches[0][0])
    return "dmy" if day_first else "mdy"


def parse_day(text: str, order: str) -> date:
    """The day; EntryError where it is none."""
    plain = _TIME.sub("", text)
    try:
        if match := _ISO.fullmatch(plain):
            return date(int(match[1]), int(match[3]), int(match[4]))
        if match := _POINTS.fullmatch(plain):
            return date(_year(match[3]), int(match[2]), int(match[1]))
        if (match := _EITHER.fullmatch(plain)) and order:
            first, second = int(match[1]), int(match[3])
            month, day = (first, second) if order == "mdy" else (second, first)
            return date(_year(match[4]), month, day)
    except ValueError as error:
        raise EntryError("day-impossible", text=quoted(text), reason=str(error)) from error
    raise EntryError("day-unreadable", text=quoted(text))


def _year(text: str) -> int:
    return int(text) + 2000 if len(text) == 2 else int(text)
