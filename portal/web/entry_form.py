"""Forms of what a configuration file declares: read as a file would be, and refused in the same sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from django.http import QueryDict

from portal.config_file.entries import Entry, read
from portal.config_file.toml_table import ConfigError, Table

E = TypeVar("E", bound=Entry)
LONGEST = 500  # characters of a field
MOST_DIGITS = 12


def read_fields(form: QueryDict, names: Iterable[str], *, longest: int = LONGEST) -> dict[str, str]:
    """By field what a form says, without blanks around it."""
    return {name: form.get(name, "").replace("\0", "").strip()[:longest] for name in names}


def number(text: str) -> int | str:
    """As a file would have it: what is no number is refused there."""
    return int(text[:MOST_DIGITS]) if text.isascii() and text.isdecimal() else text


def values_of(fields: Mapping[str, str], texts: Iterable[str], numbers: Iterable[str]) -> dict[str, Any]:
    """What a table of the file would have: no key for a blank field."""
    values: dict[str, Any] = {name: fields[name] for name in texts if fields[name]}
    return values | {name: number(fields[name]) for name in numbers if fields[name]}


def entry_of(kind: type[E], values: Mapping[str, Any], label: str) -> E:
    """What a file would say under this name. Raises ConfigError with every sentence that a file would get."""
    table = Table(label, dict(values), [])
    entry = read(table, kind)
    if entry is None or table.errors:
        raise ConfigError(*table.errors)
    return entry
