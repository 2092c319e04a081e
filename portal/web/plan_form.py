"""A version of a plan as a form: its controls, what was typed, and the draft follow from the table of plan fields.

What a form holds is text by key, with lists of the same within, whatever is wrong with it: so that a row can be added
while others are not filled in yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _

from billing.models.plans import SELECTORS
from billing.quotas.terms import DEFAULT_THRESHOLDS
from billing.rules.money import decimal_of
from billing.rules.tiers import Scale
from portal.config_file.entries import Entry, Field, fields_of, read
from portal.config_file.export import pairs
from portal.config_file.plan_entries import KEYS_OF_MODEL, PlanEntry, PriceEntry
from portal.config_file.quotas import PlanQuotaEntry
from portal.config_file.toml_table import ConfigError, Table
from portal.excerpt import quoted

PREFIX = "plan"
LONGEST = 1_000  # characters of a value; a list of GPU models may be long
MOST_ROWS = 200  # in one list
YES, NO = "yes", "no"
THRESHOLDS = "thresholds"
USUAL = ", ".join(DEFAULT_THRESHOLDS)

RawTable = dict[str, Any]
"""Text by key, a list of texts where several are chosen, and lists of tables."""


def of_post(post: QueryDict) -> RawTable:
    """What was typed; nothing of it is checked."""
    tree: dict[str, Any] = {}
    for name in post:
        prefix, *path = name.split(".")
        if prefix != PREFIX or not path or len(path) > 6:
            continue
        at: Any = tree
        for part in path[:-1]:
            at = at.setdefault(part, {}) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at[path[-1]] = post.getlist(name)
    return _raw(tree, PlanEntry)


def _raw(tree: Mapping[str, Any], kind: type[Entry]) -> RawTable:
    raw: RawTable = {}
    for field in fields_of(kind):
        value = tree.get(field.key)
        within = value if isinstance(value, dict) else {}
        if field.rule.read is not None:
            raw[field.key] = {name: _text(within.get(name)) for name in SELECTORS}
        elif field.entry is not None:
            rows = sorted((int(key), key) for key in within if key.isdecimal() and len(key) < 6)
            tables = [within[key] for _place, key in rows[:MOST_ROWS] if isinstance(within[key], dict)]
            raw[field.key] = [_raw(row, field.entry) for row in tables]
        elif is_chosen(field):
            raw[field.key] = [_text([text]) for text in value] if isinstance(value, list) else []
        else:
            raw[field.key] = _text(value)
    return raw


def completed(stored: RawTable, kind: type[Entry] = PlanEntry) -> RawTable:
    """What was typed as a row of the database has it: in the order of the fields, and with those that are new since."""
    raw = _raw({}, kind)
    for field in fields_of(kind):
        value: Any = stored.get(field.key, raw[field.key])
        if field.rule.read is not None:
            raw[field.key] |= value
        elif field.entry is not None:
            raw[field.key] = [completed(row, field.entry) for row in value]
        else:
            raw[field.key] = value
    return raw


def is_chosen(field: Field) -> bool:
    """Whether several of a list can be chosen; other lists are typed, with commas."""
    return field.key == "charges"


def _text(value: Any) -> str:
    text = value[-1] if isinstance(value, list) and value else ""
    return str(text).replace("\0", "").strip()[:LONGEST]


def of_entry(entry: PlanEntry) -> RawTable:
    """As a form shows the version. What begins with the version names no day of its own."""
    return _filled(entry, entry.begins)


def _filled(entry: Entry, begins: date) -> RawTable:
    raw = _raw({}, type(entry))
    for name, value in pairs(entry):
        if isinstance(value, Mapping):
            raw[name] |= {selector: ", ".join(values) for selector, values in value.items()}
        elif isinstance(value, list) and isinstance(raw[name], str):
            raw[name] = ", ".join(value)
        elif isinstance(value, list):
            raw[name] = [_filled(row, begins) if isinstance(row, Entry) else str(row) for row in value]
        elif isinstance(value, bool):
            raw[name] = YES if value else NO
        elif isinstance(value, Decimal):
            raw[name] = f"{value.normalize():f}"
        elif name != "from" or value != begins or isinstance(entry, PlanEntry):
            raw[name] = str(value)
    return raw


def blank_row(kind: type[Entry]) -> RawTable:
    """As it is added."""
    return _raw({}, kind) | ({THRESHOLDS: USUAL} if kind is PlanQuotaEntry else {})


def moved(raw: RawTable, move: str, path: str) -> RawTable:
    """With a row added to the list at this path, or the row there removed or moved up; as it was for any other path.

    A path is `price`, `price.0` or `price.0.tiers.1`.
    """
    *outer, last = path[:LONGEST].split(".")
    table: RawTable = raw
    kind: type[Entry] | None = PlanEntry
    for key, place in zip(outer[::2], outer[1::2], strict=False):
        table, kind = _row(table, kind, key, place)
    rows, own = _rows(table, kind, outer[-1] if len(outer) % 2 else last)
    if own is None:
        return raw
    if len(outer) % 2 == 0:
        if move == "add" and len(rows) < MOST_ROWS:
            rows.append(blank_row(own))
    elif last.isdecimal() and len(last) < 6 and int(last) < len(rows):
        _move(rows, move, int(last))
    return raw


def _move(rows: list[RawTable], move: str, place: int) -> None:
    if move == "remove":
        del rows[place]
    elif move == "up" and place:
        rows[place - 1], rows[place] = rows[place], rows[place - 1]


def _row(
    table: RawTable, kind: type[Entry] | None, key: str, place: str
) -> tuple[RawTable, type[Entry] | None]:
    rows, own = _rows(table, kind, key)
    if own is None or not place.isdecimal() or len(place) > 5 or int(place) >= len(rows):
        return {}, None
    return rows[int(place)], own


def _rows(table: RawTable, kind: type[Entry] | None, key: str) -> tuple[list[RawTable], type[Entry] | None]:
    field = next((field for field in fields_of(kind) if field.key == key), None) if kind else None
    return (table[key], field.entry) if field and field.entry else ([], None)


@dataclass(frozen=True, slots=True)
class _Reading:
    errors: list[str]

    def data(self, raw: RawTable, kind: type[Entry], label: str) -> dict[str, Any]:
        """As a file would have it, without what is blank; `label` is how sentences point at it."""
        data: dict[str, Any] = {}
        for field in fields_of(kind):
            value = raw[field.key]
            if field.entry is not None:
                rows = self._rows(value, field.entry, label)
                if rows:
                    data[field.key] = rows
            elif isinstance(value, dict):
                chosen = {name: _listed(text) for name, text in value.items() if _listed(text)}
                if chosen:
                    data[field.key] = chosen
            elif field.kind == list[str] and not is_chosen(field):
                if value or field.key == THRESHOLDS:  # which are said to be none, too
                    data[field.key] = _listed(value)
            elif value:
                data[field.key] = self._value(value, field, label)
        if kind is PriceEntry:
            self._of_model(data, label)
        return data

    def _rows(self, rows: list[RawTable], kind: type[Entry], label: str) -> list[dict[str, Any]]:
        outer = f"{label}, " if label else ""
        filled = [row for row in rows if not _is_blank(row, kind)]
        return [self.data(row, kind, f"{outer}{kind.noun} {place}") for place, row in enumerate(filled, 1)]

    def _value(self, value: Any, field: Field, label: str) -> Any:
        key = field.key.replace("_", " ")
        outer = f"{label}: " if label else ""
        if field.kind is bool:
            return value == YES
        try:
            if field.kind is date:
                return date.fromisoformat(value)
            if field.kind is int:
                return _whole(value)
            if field.kind is Decimal:
                decimal_of(value)
        except ValueError:
            sentences = {
                date: _("{label}{key} is {value}; enter a day like 2027-01-01."),
                int: _("{label}{key} is {value}; enter a whole number like 20."),
                Decimal: _("{label}{key} is {value}; enter a number like 2.50."),
            }
            text = sentences[field.kind]
            self.errors.append(text.format(label=outer, key=key, value=quoted(value)))
        return value

    def _of_model(self, data: dict[str, Any], label: str) -> None:
        """Without what goes with another model, whose fields the form shows until the model is changed."""
        model = data.get("model", Scale.PER_UNIT)
        if model not in list(Scale):
            return  # which the table of fields refuses
        for name in {name for names in KEYS_OF_MODEL.values() for name in names}:
            if name not in KEYS_OF_MODEL[Scale(model)]:
                data.pop(name, None)
        for name in KEYS_OF_MODEL[Scale(model)]:
            if name not in data:
                text = _("{label}: {key} is missing.") if name != "tiers" else _("{label} has no tiers yet.")
                self.errors.append(text.format(label=label, key=name.replace("_", " ")))


def _is_blank(row: RawTable, kind: type[Entry]) -> bool:
    """Whether nothing was typed: choices, and what a new row begins with, say nothing. A price's meter does."""
    begun = blank_row(kind)
    typed = {
        field.key: value
        for field in fields_of(kind)
        if (value := row[field.key]) != begun[field.key] and not _is_choice(field, kind)
    }
    return not any(any(value.values()) if isinstance(value, dict) else value for value in typed.values())


def _is_choice(field: Field, kind: type[Entry]) -> bool:
    return kind is not PriceEntry and isinstance(field.kind, type) and issubclass(field.kind, Enum)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(text)
    return int(text)


def _listed(text: str) -> list[str]:
    return [part for part in (part.strip() for part in text.split(",")) if part]


def entry_of(raw: RawTable) -> PlanEntry:
    """The version that was typed. Raises ConfigError with a sentence for each mistake."""
    reading = _Reading([])
    data = reading.data(raw, PlanEntry, "")
    if reading.errors:
        raise ConfigError(*reading.errors)
    errors: list[str] = []
    entry = read(Table(_("the plan"), data, errors), PlanEntry)
    if entry is None:
        raise ConfigError(*errors)
    return entry
