"""Reading TOML tables key by key, so that every mistake of a file is reported at once, each in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, overload
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError

from billing.rules.money import decimal_of
from billing.rules.period import midnight
from portal.excerpt import excerpt, quoted

Moment = date | datetime
"""As TOML writes it: a day of the zone that the reader knows, or an instant in UTC."""

Check = Callable[[Any], None]
"""Raises ValidationError with a sentence for a value that it refuses."""

FIRST_DAY = date(1970, 1, 1)
LAST_YEAR = 9998  # of an instant, which is shown in zones where it may be in the year after


class ConfigError(Exception):
    """A file cannot be applied; `sentences` say all that is wrong with it. Nothing was changed."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences
        super().__init__("\n".join(sentences))


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


@dataclass(slots=True)
class Table:
    """One table of the file. Each method takes a key; what is wrong with its value goes to `errors`."""

    name: str  # as people would point at it: 'tenant "vision-lab"'
    data: dict[str, Any]
    errors: list[str]
    keys: list[str] = field(default_factory=list)  # that may stand in it, as they were read
    outer: Table | None = None

    def wrong(self, key: str, sentence: str) -> None:
        self.errors.append(f"{self.name}: {key} {sentence}")

    def has(self, key: str) -> bool:
        self.keys.append(key)
        return key in self.data

    def text(
        self, key: str, *, filled: bool = False, longest: int = 255, check: Check | None = None
    ) -> str | None:
        """Text of one line, stripped; what is `filled` is not empty. `check` does not see an empty text."""
        if not self.has(key):
            return None
        value: str = self.data[key]
        if kind_of(value) != "text":
            self.wrong(key, f"is {kind_of(value)}; write text in quotes.")
            return None
        value = value.strip()
        if filled and not value:
            self.wrong(key, "is empty.")
        elif len(value) > longest:
            self.wrong(key, f"has {len(value)} characters; {longest} fit.")
        elif not value.isprintable():
            self.wrong(key, "has control characters in it.")
        elif check is not None and value:
            try:
                check(value)
            except ValidationError as error:
                self.wrong(key, f"is {quoted(value)}: {error.messages[0]}")
                return None
        return value

    def lines(self, key: str) -> str | None:
        """Text of several lines: a list of texts, or one with line breaks in it."""
        if isinstance(self.data.get(key), str):
            self.data[key] = self.data[key].splitlines()
        texts = self.texts(key)
        return None if texts is None else "\n".join(line for line in texts if line)

    def texts(self, key: str) -> list[str] | None:
        """One text or a list of texts."""
        if not self.has(key):
            return None
        value = self.data[key]
        values = value if isinstance(value, list) else [value]
        if not all(kind_of(text) == "text" for text in values):
            self.wrong(key, "has to be text in quotes, or a list of such texts.")
            return None
        if not all(text.isprintable() for text in values):
            self.wrong(key, "has control characters in it.")
            return None
        return [text.strip() for text in values]

    def choice(self, key: str, allowed: Collection[str], *, filled: bool = False) -> str | None:
        value = self.text(key, filled=filled)
        if value is not None and value not in allowed:
            self.wrong(key, f"is {quoted(value)}; allowed: {', '.join(allowed)}.")
            return None
        return value

    def whole(self, key: str, *, lowest: int, highest: int) -> int | None:
        if not self.has(key):
            return None
        value = self.data[key]
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            self.wrong(key, f"has to be a whole number from {lowest} to {highest}.")
            return None
        return value

    def flag(self, key: str) -> bool | None:
        if not self.has(key):
            return None
        value = self.data[key]
        if not isinstance(value, bool):
            self.wrong(key, f"is {kind_of(value)}; write true or false, without quotes.")
            return None
        return value

    def decimal(self, key: str, check: Check | None = None) -> Decimal | None:
        """An exact number: text like "1.10", or a whole number."""
        if not self.has(key):
            return None
        value = self.data[key]
        if isinstance(value, Written):
            short = excerpt(value)
            self.wrong(key, f'is {short} without quotes, which is not exact; write "{short}" as text.')
        elif isinstance(value, (int, str)) and not isinstance(value, bool):
            try:
                number = decimal_of(str(value).strip())
                if check is not None:
                    check(number)
            except ValidationError as error:
                self.wrong(key, f"is {number}; {error.messages[0]}")
            except ValueError:
                self.wrong(key, f'is {quoted(str(value))}; write a number as text, like "1.10".')
            else:
                return number
        else:
            self.wrong(key, f'is {kind_of(value)}; write a number as text, like "1.10".')
        return None

    def day(self, key: str) -> date | None:
        """A civil date."""
        if not self.has(key):
            return None
        value = self.data[key]
        if not isinstance(value, date) or isinstance(value, datetime):
            self.wrong(key, f"is {kind_of(value)}; write a date like 2017-01-01, without quotes.")
        elif value < FIRST_DAY:
            self.wrong(key, f"is {value}; write a day from {FIRST_DAY} on.")
        else:
            return value
        return None

    def moment(self, key: str) -> Moment | None:
        """A date, or an instant with its offset, which comes back in UTC."""
        if not self.has(key):
            return None
        value = self.data[key]
        if not isinstance(value, date):
            self.wrong(key, f"is {kind_of(value)}; write a date like 2017-01-01, without quotes.")
        elif not isinstance(value, datetime):
            return self.day(key)
        elif not FIRST_DAY.year <= value.year <= LAST_YEAR:
            self.wrong(
                key, f"is in the year {value.year}; write a moment from {FIRST_DAY.year} to {LAST_YEAR}."
            )
        elif value.tzinfo is None or value.microsecond:
            self.wrong(key, "has to be a whole second with its offset from UTC, like 2017-01-01T12:00:00Z.")
        else:
            return value.astimezone(UTC)
        return None

    def table(self, key: str, name: str = "") -> Table:
        """A table within; an empty one where there is none. `name`, where it has one of its own."""
        value = self.data.get(key, {})
        if self.has(key) and not isinstance(value, dict):
            self.wrong(key, f"is {kind_of(value)}; write a table.")
            value = {}
        return Table(name or f"{self.name}, {key}", value, self.errors, outer=self)

    def tables(self, key: str, name: Callable[[int, Mapping[str, Any]], str]) -> list[Table]:
        """A list of tables; `name` says how to point at each, by its place from 1 and its content."""
        if not self.has(key):
            return []
        value = self.data[key]
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self.wrong(key, f"is {kind_of(value)}; write a list of tables.")
            return []
        return [
            Table(name(place, data), data, self.errors, outer=self) for place, data in enumerate(value, 1)
        ]

    def refuse_other_keys(self) -> None:
        """Refuse the keys that nothing has read."""
        for key in self.data:
            if key not in self.keys:
                allowed = ", ".join(sorted(set(self.keys)))
                self.errors.append(f"{self.name}: there is no key {quoted(key)}; allowed: {allowed}.")


@overload
def instant(moment: Moment, zone: ZoneInfo) -> datetime: ...
@overload
def instant(moment: None, zone: ZoneInfo) -> None: ...
@overload
def instant(moment: Moment | None, zone: ZoneInfo) -> datetime | None: ...
def instant(moment: Moment | None, zone: ZoneInfo) -> datetime | None:
    """A day is the zone's midnight."""
    return moment if moment is None or isinstance(moment, datetime) else midnight(moment, zone=zone)
