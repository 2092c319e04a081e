"""How values read in JSON: money and quantities as decimal strings, instants in UTC with Z, ids opaque."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, TypeVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.rules.money import Money, decimal_text
from portal.api import identifiers
from portal.api.parameters import parse_day, parse_moment
from portal.sentences import sentence

T = TypeVar("T")
QUANTITY_DIGITS = 6


def money(amount: Money) -> dict[str, str]:
    """A whole number of minor units, with exactly the currency's digits."""
    return {"amount": amount.text, "currency": amount.currency}


def minor(value: int, currency: str) -> dict[str, str]:
    return money(Money.from_minor(value, currency))


def moment(value: datetime | None) -> str | None:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value is not None else None


def day(value: date | None) -> str | None:
    return value.isoformat() if value is not None else None


def quantity(value: Fraction | Decimal) -> str:
    """To six decimals, as on invoices; without zeros at the end."""
    return decimal_text(value if isinstance(value, Fraction) else Fraction(value), QUANTITY_DIGITS)


@extend_schema_field(
    {
        "type": "object",
        "properties": {
            "amount": {"type": "string", "pattern": r"^-?\d+(\.\d+)?$", "example": "103.78"},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$", "example": "USD"},
        },
        "required": ["amount", "currency"],
        "additionalProperties": False,
    }
)
class MoneyField(serializers.Field[Any, Any, Any, Any]):
    """A decimal string of exactly the currency's digits, and its code of ISO 4217."""

    def to_representation(self, value: Money) -> dict[str, str]:
        return money(value)

    def to_internal_value(self, data: Any) -> Money:
        if not isinstance(data, dict) or {*data} != {"amount", "currency"}:
            raise serializers.ValidationError('Write {"amount": "103.78", "currency": "USD"}.')
        if not isinstance(data["amount"], str) or not isinstance(data["currency"], str):
            raise serializers.ValidationError("Write the amount as a string, never as a number.")
        try:
            amount = Money.of(data["amount"], data["currency"])
            amount.check_bookable()
        except ValueError as error:
            raise serializers.ValidationError(sentence(error)) from None
        return amount


class LineField(serializers.CharField):
    """Text of one line, without control characters."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not text.isprintable():
            raise serializers.ValidationError("Write it in one line, without control characters.")
        return text


@extend_schema_field({"type": "string", "format": "date-time", "example": "2026-03-01T00:00:00Z"})
class MomentField(serializers.Field[Any, Any, Any, Any]):
    """An instant of RFC 3339, in UTC."""

    def to_representation(self, value: datetime) -> str | None:
        return moment(value)

    def to_internal_value(self, data: Any) -> datetime:
        if not isinstance(data, str):
            raise serializers.ValidationError("Write a time as a string of RFC 3339.")
        try:
            return parse_moment(data)
        except ValueError as error:
            raise serializers.ValidationError(sentence(error)) from None


class DayField(serializers.DateField):
    """A civil date of the years 1970 to 2199."""

    def to_internal_value(self, value: Any) -> date:
        try:
            return parse_day(value if isinstance(value, str) else "")
        except ValueError as error:
            raise serializers.ValidationError(sentence(error)) from None


@extend_schema_field({"type": "string", "pattern": r"^-?\d+(\.\d+)?$", "example": "32.010278"})
class QuantityField(serializers.Field[Any, Any, Any, Any]):
    """A decimal string; every digit counts."""

    def to_representation(self, value: Fraction | Decimal) -> str:
        return quantity(value)


@extend_schema_field({"type": "string", "pattern": "^[a-z]+_[0-9a-z]{13}$", "example": "inv_3v7ctp5qk2m8r"})
class IdField(serializers.Field[Any, Any, Any, Any]):
    """An opaque id with its kind."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.kind = kind
        options.setdefault("source", "pk")
        super().__init__(read_only=True, **options)

    def to_representation(self, value: int) -> str:
        return identifiers.write(self.kind, value)


class MinorField(MoneyField):
    """An amount that its row holds in minor units of its `currency`."""

    def __init__(self, amount: str, **options: Any) -> None:
        self.amount = amount
        super().__init__(source="*", read_only=True, **options)

    def to_representation(self, value: Any) -> dict[str, str]:
        return minor(getattr(value, self.amount), value.currency)


class RowSerializer(serializers.Serializer[T]):
    """Of objects in long lists: their attributes are read as such, all of them at once, in less than half of the time
    that DRF takes to look whether each is a method or a key. Mappings are read as DRF reads them. There are two fields
    or more, each of an attribute.
    """

    def to_representation(self, instance: T) -> dict[str, Any]:
        if isinstance(instance, Mapping):
            return dict(super().to_representation(instance))
        names, read, represent = self._reading
        values = [
            None if value is None else show(value)
            for value, show in zip(read(instance), represent, strict=True)
        ]
        return dict(zip(names, values, strict=True))

    @classmethod
    def of_rows(cls, rows: Iterable[T]) -> list[dict[str, Any]]:
        """Each row as it reads without a context. Its fields keep nothing, so all requests of a process share them."""
        return [*map(_shared(cls).to_representation, rows)]

    @cached_property
    def _reading(self) -> tuple[list[str], Callable[[Any], Sequence[Any]], list[Callable[[Any], Any]]]:
        """The names of the fields, what reads all their values, and what represents each."""
        fields = list(self._readable_fields)
        return (
            [str(field.field_name) for field in fields],
            attrgetter(*(str(field.source) for field in fields)),
            [_AS_IT_IS.get(type(field), field.to_representation) for field in fields],
        )


_AS_IT_IS: dict[type, type] = {
    serializers.CharField: str,
    serializers.IntegerField: int,
    serializers.BooleanField: bool,
}
"""What these do with what is of their type, in less time."""


@cache
def _shared(kind: type[RowSerializer[T]]) -> RowSerializer[T]:
    return kind()
