"""Values of TOML, each read by a function that returns it or raises WrongValue with what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, overload
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError

from billing.rules.money import decimal_of
from billing.rules.period import midnight
from portal import days
from portal.excerpt import excerpt, quoted

Moment = date | datetime
"""As TOML writes it: a day of the zone that the reader knows, or an instant in UTC."""

Check = Callable[[Any], object]
"""Raises ValueError or ValidationError with a sentence for a value that it refuses."""

FIRST_DAY = date(1970, 1, 1)
LAST_YEAR = 9998  # of an instant, which is shown in zones where it may be in the year after


class WrongValue(Exception):  # noqa: N818 - a value is wrong, and the file is in error
    """How the sentence goes on behind the key."""


class Written(str):
    """A TOML number with a point, as it was written: the parser makes no binary fraction of it."""

    __slots__ = ()


def kind_of(value: object) -> str:
    """What a TOML value is, in words."""
    names: list[tuple[type, str]] = [
        (bool, "a boolean"),
        (Written, "a number with a point"),
        (int, "a whole number"),
        (str, "text"),
        (datetime, "a date with a time"),
        (date, "a date"),
        (list, "a list"),
        (dict, "a table"),
    ]
    return next((name for kind, name in names if isinstance(value, kind)), "a time of day")


def text(value: Any, *, filled: bool = False, longest: int = 255, check: Check | None = None) -> str:
    """Text of one line, stripped; what is `filled` is not empty. `check` does not see an empty text."""
    if kind_of(value) != "text":
        raise WrongValue(f"is {kind_of(value)}; write text in quotes.")
    line: str = value.strip()
    if filled and not line:
        raise WrongValue("is empty.")
    if len(line) > longest:
        raise WrongValue(f"has {len(line)} characters; {longest} fit.")
    if not line.isprintable():
        raise WrongValue("has control characters in it.")
    if line:
        _checked(line, check, f"is {quoted(line)}:")
    return line


def texts(value: Any) -> list[str]:
    """One text or a list of texts."""
    values = value if isinstance(value, list) else [value]
    if not all(kind_of(line) == "text" for line in values):
        raise WrongValue("has to be text in quotes, or a list of such texts.")
    if not all(line.isprintable() for line in values):
        raise WrongValue("has control characters in it.")
    return [line.strip() for line in values]


def wholes(value: Any, *, lowest: int, highest: int) -> list[int]:
    """One whole number or a list of them."""
    return [
        whole(one, lowest=lowest, highest=highest) for one in (value if isinstance(value, list) else [value])
    ]


def lines(value: Any) -> str:
    """Text of several lines: a list of texts, or one with line breaks in it."""
    return "\n".join(filter(None, texts(value.splitlines() if kind_of(value) == "text" else value)))


def choice(value: Any, allowed: Collection[str], *, filled: bool = False) -> str:
    word = text(value, filled=filled)
    if word not in allowed:
        raise WrongValue(f"is {quoted(word)}; allowed: {', '.join(allowed)}.")
    return word


def whole(value: Any, *, lowest: int, highest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise WrongValue(f"has to be a whole number from {lowest} to {highest}.")
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongValue(f"is {kind_of(value)}; write true or false, without quotes.")
    return value


def decimal(value: Any, check: Check | None = None) -> Decimal:
    """An exact number: text like "1.10", or a whole number."""
    if isinstance(value, Written):
        short = excerpt(value)
        raise WrongValue(f'is {short} without quotes, which is not exact; write "{short}" as text.')
    if not isinstance(value, (int, str)) or isinstance(value, bool):
        raise WrongValue(f'is {kind_of(value)}; write a number as text, like "1.10".')
    try:
        number = decimal_of(str(value).strip())
    except ValueError:
        raise WrongValue(f'is {quoted(str(value))}; write a number like "1.10".') from None
    _checked(number, check, f"is {number};")
    return number


def day(value: Any) -> date:
    """A civil date."""
    if not isinstance(value, date) or isinstance(value, datetime):
        raise WrongValue(f"is {kind_of(value)}; write a date like 2017-01-01, without quotes.")
    if value < FIRST_DAY:
        raise WrongValue(f"is {value}; write a day from {FIRST_DAY} on.")
    return value


def moment(value: Any) -> Moment:
    """A date, or an instant with its offset, which comes back in UTC."""
    if not isinstance(value, datetime):
        return day(value)
    if not FIRST_DAY.year <= value.year <= LAST_YEAR:
        raise WrongValue(f"is in the year {value.year}; write a moment from {FIRST_DAY.year} to {LAST_YEAR}.")
    if value.tzinfo is None or value.microsecond:
        raise WrongValue("has to be a whole second with its offset from UTC, like 2017-01-01T12:00:00Z.")
    return value.astimezone(UTC)


def beginning(value: Any, read: Callable[[Any], Moment]) -> Moment:
    """A day or a moment from which something holds, as `read` reads it: pages count days from it on.

    What ends may end on the last day that there is, by which a file says that it never does.
    """
    begins = read(value)
    if begins.year > days.LAST_YEAR:
        raise WrongValue(f"is {value}; write a day up to the year {days.LAST_YEAR}.")
    return begins


@overload
def instant(moment: Moment, zone: ZoneInfo) -> datetime: ...
@overload
def instant(moment: None, zone: ZoneInfo) -> None: ...
@overload
def instant(moment: Moment | None, zone: ZoneInfo) -> datetime | None: ...
def instant(moment: Moment | None, zone: ZoneInfo) -> datetime | None:
    """A day is the zone's midnight."""
    return moment if moment is None or isinstance(moment, datetime) else midnight(moment, zone=zone)


def _checked(value: Any, check: Check | None, beginning: str) -> None:
    try:
        if check is not None:
            check(value)
    except ValidationError as error:  # a model's or Django's own
        raise WrongValue(f"{beginning} {error.messages[0]}") from error
    except ValueError as error:
        raise WrongValue(f"{beginning} {error}") from error
