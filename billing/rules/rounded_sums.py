"""What adds up, rounded so that it still adds up as it is shown: by largest remainder, the first of equals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from billing.rules.money import Money

HOURS = Fraction(3600, 100)
"""Seconds: pages show hundredths of an hour."""
ZERO = Fraction(0)
FINE = 1 << 64
"""Parts of a unit: whole numbers of them tell most losses apart, much faster than fractions do."""


def minor_unit(currency: str) -> Fraction:
    return Money.from_minor(1, currency).amount


def rounded_units(exact: Sequence[Fraction], total: int, missing: Sequence[Fraction] = ()) -> list[int]:
    """Whole numbers beside these that add up to `total`, which may be some off their exact sum.

    Those come first that lost most, together with what is `missing` of each from before; whole ones come last.
    """
    if not exact:
        return []
    units = [value // 1 for value in exact]
    left = total - sum(units)
    if not left:
        return units
    losses = []
    lost_before = missing or [ZERO] * len(units)
    for place, (value, unit, lost) in enumerate(zip(exact, units, lost_before, strict=True)):
        loss = unit - value - lost
        losses.append((value == unit, loss.numerator * FINE // loss.denominator, loss, place))
    order = [place for *_, place in sorted(losses, reverse=left < 0)]
    for count in range(abs(left)):
        units[order[count % len(units)]] += 1 if left > 0 else -1
    return units


def rounded_table(rows: Sequence[Sequence[Fraction]], totals: Sequence[int]) -> list[list[int]]:
    """Whole numbers of which each column adds up to its total.

    A row is the sum of its cells. What one of them lost, the next ones make up for, so that it is near its exact sum.
    """
    missing, columns = [ZERO] * len(rows), []
    for place, total in enumerate(totals):
        column = [row[place] for row in rows]
        units = rounded_units(column, total, missing)
        missing = [lost + value - unit for lost, value, unit in zip(missing, column, units, strict=True)]
        columns.append(units)
    return [list(cells) for cells in zip(*columns, strict=True)]


def rounded_parts(exact: Sequence[Fraction], total: Money) -> list[Money]:
    """Each amount in whole minor units, which add up to `total`. ValueError unless `total` is rounded.

    It may be some units off their exact sum, as where both totals that it is the difference of were rounded.
    """
    unit = minor_unit(total.currency)
    return [
        Money.from_minor(units, total.currency)
        for units in rounded_units([value / unit for value in exact], total.minor)
    ]


def rounded_rows(rows: Sequence[Sequence[Money]], total: Sequence[Money]) -> list[list[Money]]:
    """Amounts of each row, by currency, in whole minor units: they add up to the rounded total of each currency."""
    rounded: list[list[Money]] = [[] for _row in rows]
    for whole in total:
        places = [
            (place, one) for place, row in enumerate(rows) for one in row if one.currency == whole.currency
        ]
        amounts = rounded_parts([one.amount for _place, one in places], whole.rounded())
        for (place, _one), amount in zip(places, amounts, strict=True):
            rounded[place].append(amount)
    return rounded
