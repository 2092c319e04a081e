"""What usage costs by the prices that rated it, exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from billing.models import Price
from billing.rules.money import Money
from billing.rules.pricing import Meter, PerUnit


@dataclass(frozen=True, slots=True)
class Tag:
    """A price as its tenant may see it."""

    meter: Meter
    unit_price: Decimal
    currency: str


Tags = Mapping[int, Tag]


def tags(ids: Iterable[int | None]) -> Tags:
    """The prices by id; inside a tenant's scope only those that its own usage was rated by. One query."""
    found = Price.objects.filter(pk__in={pk for pk in ids if pk is not None}).values_list(
        "pk", "meter", "unit_price", "version__plan__currency"
    )
    return {pk: Tag(Meter(meter), unit_price, currency) for pk, meter, unit_price, currency in found}


def cost(tag: Tag, resource_seconds: Fraction) -> Money:
    """Exact, before the rounding that an invoice line takes."""
    return PerUnit(tag.unit_price).amount(resource_seconds, tag.currency)


def per_currency(amounts: Iterable[Money]) -> list[Money]:
    """One sum per currency, by code: nothing here converts."""
    sums: dict[str, Money] = {}
    for amount in amounts:
        sums[amount.currency] = sums.get(amount.currency, Money.zero(amount.currency)) + amount
    return [sums[currency] for currency in sorted(sums)]
