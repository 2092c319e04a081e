"""What usage costs by the prices that rated it, exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from django.db import connection

from billing.rules.money import Money
from billing.rules.pricing import Meter, PerUnit


@dataclass(frozen=True, slots=True)
class Tag:
    """A price as its tenant may see it."""

    meter: Meter
    unit_price: Decimal
    currency: str


Tags = Mapping[int, Tag]


def tags(ids: Iterable[int | None], *, known: Tags = MappingProxyType({})) -> Tags:
    """The prices by id; inside a tenant's scope only those that its own usage was rated by.

    One query; none where all are among the `known`.
    """
    wanted = {pk for pk in ids if pk is not None}
    if wanted <= known.keys():
        return known
    with connection.cursor() as cursor:
        cursor.execute(_TAGS, [list(wanted)])
        return {pk: Tag(Meter(meter), price, currency) for pk, meter, price, currency in cursor.fetchall()}


_TAGS = """
SELECT p.id, p.meter, p.unit_price, l.currency
FROM billing_price p JOIN billing_planversion v ON v.id = p.version_id JOIN billing_plan l ON l.id = v.plan_id
WHERE p.id = ANY (%s)
"""


def cost(tag: Tag, resource_seconds: Fraction) -> Money:
    """Exact, before the rounding that an invoice line takes."""
    return PerUnit(tag.unit_price).amount(resource_seconds, tag.currency)


def per_currency(amounts: Iterable[Money]) -> list[Money]:
    """One sum per currency, by code: nothing here converts."""
    sums: dict[str, Money] = {}
    for amount in amounts:
        sums[amount.currency] = sums.get(amount.currency, Money.zero(amount.currency)) + amount
    return [sums[currency] for currency in sorted(sums)]
