"""What a period will come to: the pace of the last whole days, carried on to its end.

A day is the sum of its use at the first unit's price, or any other measure of it: only how days compare matters
here. The band is two standard deviations of what such days add up to, if they go on to vary as they did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from billing.rules.errors import RuleError

LAST = 7  # whole days that the pace is taken of: a week, so that weekends count as often as they come
FEWEST = 3  # of them; with fewer nothing is forecast
DEVIATIONS = 2
_FINE = 10**9  # a root is found to so many parts of one


@dataclass(frozen=True, slots=True)
class Pace:
    """What the last whole days came to."""

    days: int
    mean: Fraction
    variance: Fraction | None  # of a day; None where there are fewer than LAST

    def coming(self, rest: Fraction) -> Coming:
        """What `rest` more days bring. ValueError where it is negative."""
        if rest < 0:
            raise RuleError("period-end-past", days=-rest)
        expected = self.mean * rest
        if self.variance is None:
            return Coming(expected, None, None)
        # The rest varies by itself, and the mean that it is told by is uncertain, too.
        reach = DEVIATIONS * root(self.variance * rest * (1 + rest / self.days))
        return Coming(expected, max(Fraction(0), expected - reach), expected + reach)


@dataclass(frozen=True, slots=True)
class Coming:
    """What is still to come; `low` and `high` are None where too few days tell."""

    expected: Fraction
    low: Fraction | None
    high: Fraction | None


def pace(days: Sequence[Fraction]) -> Pace | None:
    """The pace of these whole days, the newest last; of more than LAST the newest count. None for too few."""
    recent = list(days[-LAST:])
    if len(recent) < FEWEST:
        return None
    mean = sum(recent, Fraction(0)) / len(recent)
    if len(recent) < LAST:
        return Pace(len(recent), mean, None)
    return Pace(
        len(recent), mean, sum(((day - mean) ** 2 for day in recent), Fraction(0)) / (len(recent) - 1)
    )


def root(of: Fraction) -> Fraction:
    """The square root, down to a billionth."""
    return Fraction(isqrt(of.numerator * _FINE**2 // of.denominator), _FINE)
