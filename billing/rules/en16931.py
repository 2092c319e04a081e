"""What EN 16931 wants of a line: a quantity and a price that come to its amount.

A validator multiplies the two and rounds. Our lines are computed from exact seconds, over tiers, over all
projects of a price, or by what an earlier document billed, so the hours that people read do not always give
the amount. Where they do, the line has them; where not, it is one piece at its amount, and says the hours in
words beside.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from billing.rules.money import Money, exponent, rounded_text

DECIMALS = 2
"""Of amounts, at most; a currency of thousandths cannot be stated."""

FINEST = 4
"""Decimals of a price; one that has more is the price of 10, 100, … units (the base quantity)."""

SLACK = Fraction(2, 100)
"""How far quantity × price may be from the amount, in units of any currency but the forint: of a currency without
decimals, such as the yen, few hours are near enough."""

PLACES = (2, 3, 4, 6, 8)
"""Decimals of a quantity, the fewest that will do."""


@dataclass(frozen=True, slots=True)
class Item:
    """quantity × price ÷ base, rounded to the currency, is the amount. The price is never below zero."""

    quantity: str
    price: str
    base: str  # units that the price is for
    in_hours: bool  # else in pieces: one, or minus one

    def gives(self, amount: Money) -> bool:
        """Whether it rounds to the amount, and is as near to it as XRechnung's rule R120 wants."""
        exact = Money(Fraction(self.quantity) * Fraction(self.price) / Fraction(self.base), amount.currency)
        return exact.rounded() == amount and abs(exact.amount - amount.amount) <= SLACK


def can_state(currency: str) -> bool:
    """Whether amounts of the currency have few enough decimals."""
    return exponent(currency) <= DECIMALS


def item(amount: Money, *, resource_seconds: Fraction, unit_price: Decimal | None) -> Item:
    """The quantity and the price of a line that comes to `amount`; of hours where they give it exactly."""
    if unit_price is not None and resource_seconds:
        price, base = _stated(unit_price)
        for places in PLACES:
            hours = Item(rounded_text(resource_seconds / 3600, places), price, base, in_hours=True)
            if Fraction(hours.quantity) and hours.gives(amount):
                return hours
    pieces = "-1" if amount.amount < 0 else "1"
    size = -amount if amount.amount < 0 else amount
    return Item(pieces, size.text, "1", in_hours=False)


def _stated(unit_price: Decimal) -> tuple[str, str]:
    """The price of so many units, with at most FINEST decimals, and how many that are."""
    base = 1
    while (Fraction(unit_price) * base * 10**FINEST).denominator != 1:
        base *= 10
    return rounded_text(Fraction(unit_price) * base, FINEST), str(base)
