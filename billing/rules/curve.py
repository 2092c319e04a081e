"""How a price grows with the quantity: the points that a drawing joins and its table tells."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from billing.rules.meters import SECONDS_PER_HOUR, PriceModel
from billing.rules.money import Money
from billing.rules.tiers import Graduated, Package, Volume

ABOVE = Fraction(1, 10**6)  # of a unit: just above a bound
PACKAGES = 4  # that a curve shows
UNITS = 1_000  # that a price of single units, or of one tier, is drawn to
BEYOND = Fraction(3, 2)  # times the last bound, where the open tier is shown


@dataclass(frozen=True, slots=True)
class Point:
    """What so many units cost together; `just_above` stands for the first moment after the point before it."""

    units: Fraction
    amount: Money
    just_above: bool = False


def curve(model: PriceModel, currency: str) -> list[Point]:
    """From nothing to beyond the last bound; between two points the price is a straight line."""
    points = [Point(Fraction(0), Money.zero(currency))]
    for bound in _bounds(model):
        points.append(Point(bound, _amount(model, bound, currency)))
        above = _amount(model, bound + ABOVE, currency)
        if _leaps(model):
            points.append(Point(bound, above, just_above=True))
    end = _end(model)
    if not isinstance(model, Package):
        points.append(Point(end, _amount(model, end, currency)))
    else:
        points.insert(1, Point(Fraction(0), _amount(model, ABOVE, currency), just_above=True))
        del points[-1]  # beyond the last package that is shown
    return points


def cliffs(points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """Where a little more costs less: the point, and what comes just above it."""
    pairs = itertools.pairwise(points)
    return [(at, above) for at, above in pairs if above.just_above and above.amount < at.amount]


def _bounds(model: PriceModel) -> list[Fraction]:
    if isinstance(model, Package):
        return [Fraction(model.size) * n for n in range(1, PACKAGES + 1)]
    if isinstance(model, (Graduated, Volume)):
        return [Fraction(tier.up_to) for tier in model.tiers if tier.up_to is not None]
    return []


def _leaps(model: PriceModel) -> bool:
    return isinstance(model, (Volume, Package))


def _end(model: PriceModel) -> Fraction:
    bounds = _bounds(model)
    return bounds[-1] * BEYOND if bounds else Fraction(UNITS)


def _amount(model: PriceModel, units: Fraction, currency: str) -> Money:
    return model.amount(units * SECONDS_PER_HOUR, currency)
