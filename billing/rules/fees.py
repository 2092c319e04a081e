"""What a period costs beside its use: flat fees, a minimum commitment, discounts; and what use it includes.

All are said for a whole billing period and count by the seconds for which they hold in it: `seconds` of
`of`. Amounts are rounded once, where each becomes a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.rules.errors import RuleError
from billing.rules.meters import SECONDS_PER_HOUR
from billing.rules.money import Money


@dataclass(frozen=True, slots=True)
class Fee:
    """A flat amount per period, in major units; ValueError when it is negative."""

    amount: Decimal

    def __post_init__(self) -> None:
        _check_not_negative(self.amount, "fee")

    def owed(self, currency: str, part: Fraction) -> Money:
        """What is owed for that part of a period."""
        return Money(Fraction(self.amount) * part, currency).rounded()


@dataclass(frozen=True, slots=True)
class Commitment:
    """What use comes to at least per period; what lies above counts `factor` times. ValueError for a factor below 1."""

    amount: Decimal
    factor: Decimal = Decimal(1)

    def __post_init__(self) -> None:
        _check_not_negative(self.amount, "commitment")
        if not self.factor.is_finite() or self.factor < 1:
            raise RuleError("overage-factor", factor=self.factor)

    def owed(self, use: Money, part: Fraction) -> Money:
        """What is owed beside the use: the true-up below the commitment, or the surcharge of what lies above."""
        return committed([(self, part)], use, whole=part)


def committed(parts: Sequence[tuple[Commitment, Fraction]], use: Money, *, whole: Fraction) -> Money:
    """As `Commitment.owed`, of several that follow each other, each with the part of the period for which it holds.

    The use of a period is not told apart: it is compared with the sum of the parts. What lies above counts by each
    factor for its share of `whole`, and once for what is left of that.
    """
    floor = Money(
        sum((Fraction(commitment.amount) * part for commitment, part in parts), Fraction(0)), use.currency
    )
    if use <= floor:
        return (floor - use).rounded()
    more = sum((part * (Fraction(commitment.factor) - 1) for commitment, part in parts), Fraction(0))
    return ((use - floor) * (more / whole)).rounded() if more else Money.zero(use.currency)


@dataclass(frozen=True, slots=True)
class Discount:
    """A percentage of what is charged, or an amount per period. ValueError unless it is one of them, above zero."""

    percent: Decimal | None = None
    amount: Decimal | None = None

    def __post_init__(self) -> None:
        if (self.percent is None) == (self.amount is None):
            raise RuleError("discount-kind")
        if self.percent is not None and not (self.percent.is_finite() and 0 < self.percent <= 100):
            raise RuleError("discount-percent", percent=self.percent)
        if self.amount is not None and not (self.amount.is_finite() and self.amount > 0):
            raise RuleError("discount-amount", amount=self.amount)

    def owed(self, base: Money, part: Fraction) -> Money:
        """What it takes off `base`, as a negative amount, for that part of the period; never more than there is."""
        if self.percent is not None:
            off = base * (Fraction(self.percent) / 100 * part)
        else:
            off = Money(Fraction(self.amount or 0) * part, base.currency)
        return -min(off.rounded(), base) if base.amount > 0 else Money.zero(base.currency)


def amount_of(terms: Mapping[str, Any], currency: str) -> Money:
    """What a line's frozen terms come to, computed again. ValueError for terms of another kind."""
    try:
        part = Fraction(int(terms["seconds"]), int(terms["of"]))
        if "fee" in terms:
            return Fee(Decimal(terms["fee"])).owed(currency, part)
        if "commitment" in terms:
            use = Money.from_minor(terms["use"], currency)
            return Commitment(Decimal(terms["commitment"]), Decimal(terms["factor"])).owed(use, part)
        if "commitments" in terms:
            parts = [_commitment(entry, int(terms["of"])) for entry in terms["commitments"]]
            return committed(parts, Money.from_minor(terms["use"], currency), whole=part)
        percent, amount = (
            None if terms[name] is None else Decimal(terms[name]) for name in ("percent", "off")
        )
        return Discount(percent, amount).owed(Money.from_minor(terms["base"], currency), part)
    except (KeyError, TypeError) as error:
        raise RuleError("line-terms", terms=terms) from error


def _commitment(terms: Mapping[str, Any], of: int) -> tuple[Commitment, Fraction]:
    rule = Commitment(Decimal(terms["commitment"]), Decimal(terms["factor"]))
    return rule, Fraction(int(terms["seconds"]), of)


@dataclass(frozen=True, slots=True)
class Included:
    """How an allowance stands in one period, in resource-seconds."""

    own: Fraction  # of the period itself, in proportion to its seconds
    carried: Fraction  # left by the period before
    used: Fraction  # by the prices that it covers

    @property
    def available(self) -> Fraction:
        """All that costs nothing in the period."""
        return self.own + self.carried

    @property
    def left(self) -> Fraction:
        """What is left of its own hours; what was carried is used first, and lapses."""
        return self.own - min(self.own, max(Fraction(0), self.used - self.carried))


def included(*, rollover: bool, periods: Sequence[tuple[Fraction, Fraction]]) -> list[Included]:
    """An allowance over consecutive periods, each told as (hours of its own, resource-seconds used).

    What a period leaves is good for the next one only, and only with `rollover`.
    """
    results: list[Included] = []
    left = Fraction(0)
    for hours, used in periods:
        results.append(Included(hours * SECONDS_PER_HOUR, left, used))
        left = results[-1].left if rollover else Fraction(0)
    return results


def _check_not_negative(amount: Decimal, what: str) -> None:
    if not amount.is_finite() or amount < 0:
        raise RuleError(f"{what}-below-zero", amount=amount)
