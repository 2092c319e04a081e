"""Why spending changed between two ranges of days: by how many runs, how long, at which prices, and of which use.

All exact. The parts add up to the difference, also once `rounded_sums` has rounded them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)
ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Use:
    """What was used of one item in a range, and what that cost: one unit and one currency."""

    quantity: Fraction
    cost: Fraction


NOTHING = Use(ZERO, ZERO)


@dataclass(frozen=True, slots=True)
class Parts:
    """Of one group and one unit. Below zero: it made the later range cheaper."""

    volume: Fraction  # more or less was used, at the average price before
    price: Fraction  # the same item costs something else
    mix: Fraction  # of what was used more was of the dear items, or of the cheap ones

    @property
    def total(self) -> Fraction:
        return self.volume + self.price + self.mix


def parts_of(before: Mapping[Item, Use], after: Mapping[Item, Use]) -> Parts:
    """What the difference of a group's cost is made of, by its items. They add up to it.

    An item that was not used before has no former price: it changes the volume and the mix, never the price.
    """
    old, new = total_use(before), total_use(after)
    at_old_prices = sum((_at_old_price(before.get(item, NOTHING), use) for item, use in after.items()), ZERO)
    more = new.quantity - old.quantity
    volume = more * old.cost / old.quantity if old.quantity else at_old_prices - old.cost
    return Parts(volume, new.cost - at_old_prices, at_old_prices - old.cost - volume)


def total_use(items: Mapping[Item, Use]) -> Use:
    """Of all of them."""
    return Use(
        sum((use.quantity for use in items.values()), ZERO), sum((use.cost for use in items.values()), ZERO)
    )


def _at_old_price(old: Use, new: Use) -> Fraction:
    return new.quantity * old.cost / old.quantity if old.quantity else new.cost


@dataclass(frozen=True, slots=True)
class Runs:
    """How many jobs ran in the earlier range and in the later one."""

    earlier: int
    later: int


def split_volume(volume: Fraction, *, old: Use, new: Use, runs: Runs) -> tuple[Fraction, Fraction] | None:
    """What of the volume is the number of runs, at the average cost of one before, and what their length.

    They add up to it. What is new, or gone, is all number. None where a range has use and no run that it is of.
    """
    if (old.quantity and not runs.earlier) or (new.quantity and not runs.later):
        return None
    if not old.quantity or not new.quantity:
        return volume, ZERO
    number = (runs.later - runs.earlier) * old.cost / runs.earlier
    return number, volume - number
