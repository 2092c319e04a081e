"""What usage costs by the prices that rated it, exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType

from django.db import connection

from billing.rules.meters import AnyMeter, PerUnit, meter_of
from billing.rules.money import Money


@dataclass(frozen=True, slots=True)
class Tag:
    """A price as its tenant may see it."""

    meter: AnyMeter
    unit_price: Decimal
    currency: str
    by_total: bool = (
        False  # tiers or an allowance look at the total of a period: `unit_price` is the first unit's
    )


Tags = Mapping[int, Tag]
_TAGS = "SELECT * FROM billing_pricetag WHERE price_id = ANY (%s)"


def tags(ids: Iterable[int | None], *, prices: Tags = MappingProxyType({})) -> Tags:
    """The prices by id; inside a tenant's scope only those that its own usage was rated by.

    One query; none where all are among the `known`.
    """
    price_ids = {pk for pk in ids if pk is not None}
    if price_ids <= prices.keys():
        return prices
    with connection.cursor() as cursor:
        cursor.execute(_TAGS, [list(price_ids)])
        return {pk: tag(*columns) for pk, *columns in cursor.fetchall()}


def tag(
    meter: str, unit_price: Decimal, currency: str, by_total: bool, label: str = "", unit: str = ""
) -> Tag:
    """Of a row of the view billing_pricetag."""
    return Tag(meter_of(meter, unit=unit, label=label), unit_price, currency, by_total)


def cost(tag: Tag, resource_seconds: Fraction) -> Money:
    """Exact, before the rounding that an invoice line takes."""
    return Money(_of_one_second(tag.unit_price) * resource_seconds, tag.currency)


@lru_cache
def _of_one_second(unit_price: Decimal) -> Fraction:
    """Of a resource: lists of jobs have many costs and few prices."""
    return PerUnit(unit_price).rate


def per_currency(amounts: Iterable[Money]) -> list[Money]:
    """One sum per currency, by code: nothing here converts."""
    sums: dict[str, Money] = {}
    for amount in amounts:
        before = sums.get(amount.currency)
        sums[amount.currency] = amount if before is None else before + amount
    return [sums[currency] for currency in sorted(sums)]
