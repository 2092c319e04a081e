"""Tables as structs: the fields of an `Entry` are the keys of one kind of table, and how it is read follows from them.

A field's type says what its value is, its default what holds where the key is not there (None: the file does not say,
so it stays as it is), and `Rule` what else is asked of it. msgspec's own decoder would stop at the first mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

import msgspec
from django.db.models import Model

from portal.config_file import toml_values
from portal.config_file.toml_table import Table
from portal.config_file.toml_values import Check, Moment
from portal.excerpt import excerpt

E = TypeVar("E", bound="Entry")
M = TypeVar("M", bound=Model)
ENDS = "until"
"""The key of each day or moment that is no beginning."""
key = msgspec.field
"""Of a field whose key in the file has another name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # validators have no hash, which annotations need
class Rule:
    """What a field's type does not say of its value."""

    filled: bool = False  # text that is not empty
    longest: int = 255  # characters
    check: Check | None = None
    lowest: int = 0
    highest: int = 0
    choices: Collection[str] = ()
    missing: str = "."  # how the sentence goes on where a required key is missing
    single: bool = False  # a table instead of a list of one
    value: Callable[[Any], Any] | None = None  # reads it instead of what the type says
    read: Callable[[Table, str], Any] | None = (
        None  # reads the key; None for what is not there or was refused
    )


class Entry(msgspec.Struct, frozen=True):
    """One table of a file."""

    noun: ClassVar[str] = ""  # by which sentences point at it
    named_by: ClassVar[str] = ""  # the key whose value tells it from others of its kind; "": its place does
    label: str = ""  # as sentences point at it: 'plan "standard", price 2'

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        """Check values against each other, and fill in what follows from others; `values` has what was read."""

    @property
    def identity(self) -> str:
        """What no other of its kind in the same list has; "" where nothing has to differ."""
        return ""

    def columns(self, *without: str) -> dict[str, Any]:
        """What the file says by field, without these fields and the tables within."""
        names = [field.name for field in fields_of(type(self)) if field.entry is None]
        values = {name: getattr(self, name) for name in names if name not in without}
        return {name: value for name, value in values.items() if value is not None}

    def replaced(self, **values: Any) -> Self:
        return msgspec.structs.replace(self, **values)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    key: str
    kind: Any
    rule: Rule
    default: Any  # msgspec.NODEFAULT where the key is required

    @property
    def entry(self) -> type[Entry] | None:
        """Of which kind the table, or the tables, in it are; None for a value."""
        kind = get_args(self.kind)[0] if get_origin(self.kind) is list else self.kind
        return kind if isinstance(kind, type) and issubclass(kind, Entry) else None

    @property
    def required(self) -> bool:
        return self.default is msgspec.NODEFAULT


@cache
def fields_of(kind: type[Entry]) -> tuple[Field, ...]:
    """In the order in which they are written."""
    fields = []
    for info in msgspec.structs.fields(kind):
        if info.name != "label":
            hint, rule = _resolved(info.type)
            default = None if info.default_factory is not msgspec.NODEFAULT else info.default
            fields.append(Field(info.name, info.encode_name, hint, rule, default))
    return tuple(fields)


def _resolved(hint: Any, rule: Rule | None = None) -> tuple[Any, Rule]:
    """The type without `None` and annotations, and its rule."""
    if get_origin(hint) is Annotated:
        return _resolved(get_args(hint)[0], get_args(hint)[1])
    options = [option for option in get_args(hint) if option is not NoneType]
    if NoneType in get_args(hint):
        return _resolved(options[0] if len(options) == 1 else Moment, rule)
    return hint, rule or Rule()


def read(table: Table, kind: type[E]) -> E | None:
    """What the table says; None where anything in it is wrong, and then its errors say what."""
    errors, fields = len(table.errors), dict[str, Any]()
    for field in fields_of(kind):
        value = _value(table, field)
        if value is not None and not (value == "" and field.default and not field.required):
            fields[field.name] = value
    kind.complete(table, fields)
    for field in fields_of(kind):
        if field.required and field.name not in fields and field.key not in table.data:
            table.wrong(field.key, f"is missing{field.rule.missing}")
    table.refuse_other_keys()
    return None if len(table.errors) > errors else kind(**{"label": table.name} | fields)


def _value(table: Table, field: Field) -> Any:
    """None where it is not there, or was refused."""
    name, kind, rule = field.key, field.kind, field.rule
    filled = rule.filled or field.required
    if rule.read is not None:
        return rule.read(table, name)
    if field.entry is not None and field.entry is not kind:
        return _list(table, field, field.entry)
    if field.entry is not None:
        within = table.table(name, field.entry.noun)
        return read(within, field.entry) if name in table.data else None
    reader = _reader(kind, rule, filled=filled)
    if kind in {date, Moment} and name != ENDS:
        reader = partial(toml_values.beginning, read=reader)
    return table.value(name, reader)


def _reader(kind: Any, rule: Rule, *, filled: bool) -> Callable[[Any], Any]:
    """What reads a value of this type."""
    if rule.value is not None:
        return rule.value
    if isinstance(kind, type) and issubclass(kind, Enum):
        names = [member.value for member in kind]
        return lambda value: kind(toml_values.choice(value, names, filled=filled))
    if rule.choices:
        return partial(toml_values.choice, allowed=rule.choices)
    if kind is str:
        return partial(toml_values.text, filled=filled, longest=rule.longest, check=rule.check)
    if kind is int:
        return partial(toml_values.whole, lowest=rule.lowest, highest=rule.highest)
    if kind == list[int]:
        return partial(toml_values.wholes, lowest=rule.lowest, highest=rule.highest)
    if kind is Decimal:
        return partial(toml_values.decimal, check=rule.check)
    return READERS[kind]


READERS: Mapping[Any, Callable[[Any], Any]] = {
    bool: toml_values.flag,
    date: toml_values.day,
    Moment: toml_values.moment,
    list[str]: toml_values.texts,
}


def _list(table: Table, field: Field, kind: type[E]) -> list[E] | None:
    """Those that are right; None where the key is not there."""
    outer = f"{table.name}, " if table.outer else ""

    def name(place: int, data: Mapping[str, Any]) -> str:
        own = data.get(kind.named_by)
        return (
            f'{outer}{kind.noun} "{excerpt(own)}"' if isinstance(own, str) else f"{outer}{kind.noun} {place}"
        )

    if field.rule.single and not isinstance(table.data.get(field.key), list):
        tables = [table.table(field.key)] if table.has(field.key) else []
    else:
        tables = table.tables(field.key, name)
    entries = [entry for within in tables if (entry := read(within, kind)) is not None]
    for own, times in Counter(entry.identity for entry in entries).items():
        if own and times > 1:
            table.errors.append(f'{outer}{kind.noun} "{excerpt(own)}" stands in the file twice.')
    return entries if field.key in table.data else None


def save(row: M, columns: Mapping[str, Any]) -> M:
    """Save the row if it is new or a column of it differs."""
    differing = [name for name, value in columns.items() if getattr(row, name) != value]
    for name in differing:
        setattr(row, name, columns[name])
    if row.pk is None or differing:
        row.save()
    return row
