"""A statement: what is owed less what was already billed, line by line.

It does not ask what happened since the last invoice. It compares totals, so late usage, corrections
and voided invoices are all the same case: whatever the order, the same cents have been billed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from billing.rules.money import Money
from billing.rules.tax import tax_on

if TYPE_CHECKING:
    from billing.rules.period import Period
    from billing.rules.pricing import Meter, PriceModel


@dataclass(frozen=True, slots=True, order=True)
class LineKey:
    """What makes two quantities one line: when it was used, by which project, of what, at which price."""

    service: Period  # the billing period in which the use took place
    project: str
    meter: Meter
    price_id: int


@dataclass(frozen=True, slots=True)
class Owed:
    """All that was ever used under a key, billed or not. ValueError for a negative total."""

    resource_seconds: Fraction
    model: PriceModel

    def __post_init__(self) -> None:
        if self.resource_seconds < 0:
            raise ValueError(f"Nobody can have used {self.resource_seconds} resource-seconds.")


@dataclass(frozen=True, slots=True)
class Billed:
    """The sum of the lines that standing (not voided) invoices hold under a key."""

    resource_seconds: Fraction
    amount: Money
    unit_price: Decimal  # as those lines print it; the line that takes them back prints it again


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an invoice; negative where less is owed than was billed.

    `amount` is in whole minor units and can differ from quantity × price by a rounding of the lines
    before it: it brings the total billed under the key to the rounded total owed.
    """

    key: LineKey
    resource_seconds: Fraction
    unit_price: Decimal  # per hour of the resource
    amount: Money
    correction: bool  # of an earlier (or later) service period than the invoice's own


@dataclass(frozen=True, slots=True)
class Totals:
    """The foot of an invoice. One whose parts do not add up cannot exist (ValueError)."""

    subtotal: Money
    tax: Money
    total: Money

    def __post_init__(self) -> None:
        if self.subtotal + self.tax != self.total:
            raise ValueError(f"{self.subtotal} and {self.tax} do not add up to {self.total}.")


def statement(
    *, owed: Mapping[LineKey, Owed], billed: Mapping[LineKey, Billed], period: Period, currency: str
) -> list[Line]:
    """The lines that bring what is billed to what is owed; no lines when they are equal.

    `owed` and `billed` are totals since ever, not since the last invoice. Lines of `period` come
    first, corrections after them, each by key. A key that is billed but no longer owed is taken
    back whole. A free price still shows what was used. CurrencyMismatchError when something was
    billed in another currency.
    """
    lines = [
        _line(key, owed.get(key), billed.get(key), period, currency) for key in owed.keys() | billed.keys()
    ]
    return sorted(
        (line for line in lines if line.resource_seconds or line.amount.amount),
        key=lambda line: (line.correction, line.key),
    )


def totals(lines: Iterable[Line], *, tax_rate: Decimal) -> Totals:
    """Sum the lines and tax the sum once; `tax_rate` in percent. ValueError without any line."""
    amounts = [line.amount for line in lines]
    if not amounts:
        raise ValueError("An invoice without lines has no currency and no totals.")
    subtotal = sum(amounts, Money.zero(amounts[0].currency))
    tax = tax_on(subtotal, rate=tax_rate)
    return Totals(subtotal=subtotal, tax=tax, total=subtotal + tax)


def _line(key: LineKey, owed: Owed | None, billed: Billed | None, period: Period, currency: str) -> Line:
    seconds, amount, unit_price = Fraction(0), Money.zero(currency), Decimal(0)
    if billed:
        seconds, amount, unit_price = -billed.resource_seconds, amount - billed.amount, billed.unit_price
    if owed:
        seconds += owed.resource_seconds
        amount += owed.model.amount(owed.resource_seconds, currency).rounded()
        unit_price = owed.model.unit_price
    return Line(key, seconds, unit_price, amount, correction=key.service != period)
