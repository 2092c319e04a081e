"""Tables of the configuration file as JSON: the fields of an `Entry` make the body of a request and of an answer.

So a plan, a tenant or a cluster has the same fields, and is refused by the same sentences, in a file for `apply` and
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from clusters.connectors.base import Secret
from portal.api.bodies import Body
from portal.api.fields import DayField
from portal.api.parameters import parse_day, parse_moment
from portal.api.problems import bad_request
from portal.config_file.entries import Entry, Field, fields_of, read
from portal.config_file.toml_table import Table
from portal.config_file.toml_values import Moment

E = TypeVar("E", bound=Entry)
OPEN: Mapping[str, Any] = {"required": False, "allow_null": True}


@extend_schema_field({"type": "string", "pattern": r"^-?\d+(\.\d+)?$", "example": "2.50"})
class DecimalText(serializers.CharField):
    """A number as text, all of whose digits count."""

    def to_representation(self, value: Any) -> str:
        return f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)


@extend_schema_field(
    {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d", "example": "2026-03-01", "maxLength": 40}
)
class DayOrMoment(serializers.Field[Any, Any, Any, Any]):
    """A day, whose midnight in the zone of its tenant or cluster counts, or an instant with its zone."""

    def to_representation(self, value: Moment) -> str:
        return value.isoformat().replace("+00:00", "Z")

    def to_internal_value(self, data: Any) -> Moment:
        if not isinstance(data, str):
            raise serializers.ValidationError("Write a day such as 2026-03-01, or a time of RFC 3339.")
        try:
            return parse_day(data) if "T" not in data else parse_moment(data)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from None


def body_of(kind: type[Entry], *, without: Iterable[str] = ()) -> type[Body]:
    """The JSON object of this kind of table, without these keys."""
    return _body_of(kind, tuple(without))


@cache
def _body_of(kind: type[Entry], without: tuple[str, ...]) -> type[Body]:
    fields = {field.key: _serializer_field(field) for field in fields_of(kind) if field.key not in without}
    return type(kind.__name__.removesuffix("Entry") + "Fields", (Body,), fields | {"__doc__": kind.__doc__})


SIMPLE: Mapping[Any, type[serializers.Field[Any, Any, Any, Any]]] = {
    bool: serializers.BooleanField,
    date: DayField,
    Decimal: DecimalText,
    Moment: DayOrMoment,
}


def _serializer_field(field: Field) -> serializers.Field[Any, Any, Any, Any]:
    is_needed = (
        field.required and field.rule.missing == "."
    )  # else it may follow from others, or the file says more
    options: dict[str, Any] = {"required": True} if is_needed else dict(OPEN)
    kind, rule, inner = field.kind, field.rule, field.entry
    if inner is not None:  # with many=True what may be null is each of them, too
        body = body_of(inner)
        return body(**options) if inner is kind else serializers.ListSerializer(child=body(), **options)
    if isinstance(kind, type) and issubclass(kind, Secret):
        return serializers.JSONField(write_only=True, **options)
    if rule.read is not None:
        return serializers.JSONField(**options)
    if kind in SIMPLE:
        return SIMPLE[kind](**options)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return serializers.ChoiceField(choices=[member.value for member in kind], **options)
    return _text_field(field, options)


def _text_field(field: Field, options: Mapping[str, Any]) -> serializers.Field[Any, Any, Any, Any]:
    kind, rule = field.kind, field.rule
    if kind is int:
        return serializers.IntegerField(min_value=rule.lowest, max_value=rule.highest, **options)
    if kind == list[int]:
        number = serializers.IntegerField(min_value=rule.lowest, max_value=rule.highest)
        return serializers.ListField(child=number, **options)
    if kind == list[str]:
        return serializers.ListField(child=serializers.CharField(), **options)
    if rule.choices:
        return serializers.ChoiceField(choices=[*rule.choices], **options)
    return serializers.CharField(allow_blank=not (rule.filled or field.required), **options)


def as_data(entry: Entry) -> dict[str, Any]:
    """The table as JSON holds it, by key; what does not hold in it is null or empty."""
    return {field.key: _plain(getattr(entry, field.name)) for field in fields_of(type(entry))}


def _plain(value: Any) -> Any:
    if isinstance(value, Entry):
        return as_data(value)
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def entry_of(kind: type[E], values: Mapping[str, Any], *, label: str) -> E:
    """The table that a validated body says. Raises ProblemError 400 with every sentence that a file would get."""
    table = Table(label, _cleaned(kind, values), [])
    entry = read(table, kind)
    if entry is None:
        raise bad_request(" ".join(table.errors), *(("/", text) for text in table.errors))
    return entry


def _cleaned(kind: type[Entry], values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is null or empty: a file leaves that out."""
    cleaned: dict[str, Any] = {}
    for field in fields_of(kind):
        value, inner = values.get(field.key), field.entry
        if value is None or value in ([], {}):
            continue
        if inner is not None:
            value = (
                [_cleaned(inner, row) for row in value] if isinstance(value, list) else _cleaned(inner, value)
            )
        cleaned[field.key] = value
    return cleaned
