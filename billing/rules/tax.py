"""Tax: once per rate, on the sum of the net amounts.

Taxing each line and adding up gives other cents (three lines of 0.33 at 20 %: 0.21 instead of
0.20), and EN 16931 expects the sum of the category to be taxed.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from billing.rules.money import Money


def tax_on(net: Money, *, rate: Decimal) -> Money:
    """The tax on `net`, the sum of all lines of one rate, in whole minor units.

    `rate` is in percent: `Decimal("19")`. ValueError unless it is from 0 to 100.
    """
    if not isinstance(rate, Decimal):
        raise TypeError(f"A tax rate is a Decimal, not {type(rate).__name__}.")
    if not rate.is_finite() or not 0 <= rate <= 100:
        raise ValueError(f"A tax rate is from 0 to 100 percent, not {rate}.")
    return (net * rate * Fraction(1, 100)).rounded()
