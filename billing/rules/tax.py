"""Tax: once per rate, on the sum of the net amounts.

Taxing each line and adding up gives other cents (three lines of 0.33 at 20 %: 0.21 instead of
0.20), and EN 16931 expects the sum of the category to be taxed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from billing.rules.errors import RuleError

if TYPE_CHECKING:
    from billing.rules.money import Money


@dataclass(frozen=True, slots=True, order=True)
class Tax:
    """How a line is taxed. `rate` in percent, as printed; `category` as in EN 16931: `S`, `Z`, `E`, `AE`, `O`."""

    category: str
    rate: Decimal


@dataclass(frozen=True, slots=True)
class TaxRow:
    """What the lines of one tax come to, and the tax on it, both in whole minor units."""

    kind: Tax
    net: Money
    tax: Money


def tax_on(net: Money, *, rate: Decimal) -> Money:
    """The tax on `net`, the sum of all lines of one rate, in whole minor units.

    `rate` is in percent: `Decimal("19")`. ValueError unless it is from 0 to 100.
    """
    if not isinstance(rate, Decimal):
        raise TypeError(f"A tax rate is a Decimal, not {type(rate).__name__}.")
    if not rate.is_finite() or not 0 <= rate <= 100:
        raise RuleError("tax-rate-range", rate=rate)
    return (net * rate * Fraction(1, 100)).rounded()


def breakdown(lines: Iterable[tuple[Tax, Money]]) -> list[TaxRow]:
    """One row per tax, the highest rate first; their nets add up to the lines."""
    return [TaxRow(kind, net, tax_on(net, rate=kind.rate)) for kind, net in _nets(lines)]


def credited(lines: Iterable[tuple[Tax, Money]], *, left: Iterable[TaxRow]) -> list[TaxRow]:
    """The tax rows of a credit note of these lines, which are negative; `left`: what is left of its invoice.

    What is left after it is taxed on its sum, and the credit note takes the difference. So the tax of
    any number of credit notes adds up to the invoice's, and to no cent more. KeyError for a tax that
    the invoice does not have.
    """
    rows = {row.kind: row for row in left}
    return [
        TaxRow(kind, net, tax_on(rows[kind].net + net, rate=kind.rate) - rows[kind].tax)
        for kind, net in _nets(lines)
    ]


def _nets(lines: Iterable[tuple[Tax, Money]]) -> list[tuple[Tax, Money]]:
    nets: dict[Tax, Money] = {}
    for kind, amount in lines:
        nets[kind] = nets[kind] + amount if kind in nets else amount
    return sorted(nets.items(), key=lambda item: (-item[0].rate, item[0].category))
