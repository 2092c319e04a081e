"""Quotas: which thresholds what is used, or forecast, has reached; plain values, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from billing.rules.errors import RuleError
from billing.rules.money import decimal_of
from portal.excerpt import quoted

THRESHOLD_TEXT = 40
"""Characters of a threshold at most."""
MOST_THRESHOLDS = 20
LARGEST = 10**12
"""Whole units of an amount at most."""
DECIMALS = 6
GPU_HOUR_PLACES = 3
"""Decimals of GPU-hours that people set and read."""
LONGEST_WINDOW = 24 * 366 * 10
"""Hours of a rolling window at most: ten years."""
SHORTEST_GRACE, GRACE, LONGEST_GRACE = 15, 120, 7 * 24 * 60
"""Minutes from the warning to the end of running jobs: at least, where none is said, and at most."""
BACK_UNDER = Fraction(1, 100)
"""So far below a threshold, as part of the amount, it counts as left: rounding makes nobody write twice."""
REPEATS = 100
"""Of one pass at most: a slip of the hand is to write no thousand rows."""


class Every(StrEnum):
    """How long a period of a quota is, and where it begins."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"
    BILLING_PERIOD = "billing-period"
    TERM = "term"
    ROLLING = "rolling"


class Watched(StrEnum):
    """What reaches a threshold."""

    USED = "used"
    FORECAST = "forecast"
    STALE = "stale"


class QuotaState(StrEnum):
    """How much of a quota is used."""

    OK = "ok"
    NEAR = "near"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A share of the amount, or an absolute level: `text` is how it was written, and its name."""

    text: str
    share: Fraction | None
    level: Fraction | None

    def at(self, amount: Fraction) -> Fraction:
        """The figure that reaches it."""
        return amount * self.share if self.share is not None else self.level or Fraction(0)


@dataclass(frozen=True, slots=True)
class Reached:
    """A threshold that a figure has reached, with the level that it stands for now."""

    text: str
    level: Fraction


@lru_cache(maxsize=1000)
def read_threshold(text: str, *, repeats: bool = False, what: str = "threshold") -> Threshold:
    """`"80%"` or `"250.00"`. RuleError for none, for 0 and below, and above 100 % unless it `repeats`."""
    written = text.strip()
    is_share = written.endswith("%")
    number = written.removesuffix("%").strip()
    try:
        value = decimal_of(number)
    except ValueError:
        raise RuleError("threshold-unreadable", text=quoted(text)) from None
    if value <= 0 or -int(value.as_tuple().exponent) > DECIMALS or value > LARGEST:
        raise RuleError(f"{what}-range", text=quoted(text))
    if not is_share:
        return Threshold(_plain(value), None, Fraction(value))
    if value > 100 and not repeats and what == "threshold":
        raise RuleError("threshold-beyond", text=quoted(text))
    if value > 1000:
        raise RuleError("threshold-too-far", text=quoted(text))
    return Threshold(f"{_plain(value)}%", Fraction(value) / 100, None)


def read_thresholds(
    texts: Sequence[str], *, repeats: bool = False, what: str = "threshold"
) -> list[Threshold]:
    """Each once, in the order in which a rising figure reaches them at an amount of 100. RuleError otherwise."""
    if len(texts) > MOST_THRESHOLDS:
        raise RuleError("thresholds-many", most=MOST_THRESHOLDS, count=len(texts))
    thresholds = [read_threshold(text, repeats=repeats, what=what) for text in texts]
    if len({threshold.text for threshold in thresholds}) < len(thresholds):
        raise RuleError("thresholds-twice")
    return sorted(thresholds, key=lambda threshold: (threshold.share is None, threshold.at(Fraction(100))))


def reached(
    figure: Fraction, *, amount: Fraction, thresholds: Sequence[str], repeat_every: Decimal | None = None
) -> list[Reached]:
    """Those that the figure has reached, the lowest first: what lies on a threshold has reached it.

    A quota of nothing is reached by the first second of use, and only then. Beyond the last threshold and the amount
    each further `repeat_every` is one more, REPEATS at most, the nearest to the figure.
    """
    if figure <= 0:
        return []
    levels = [(one.text, one.at(amount)) for one in _read_all(thresholds)]
    reached_levels = [Reached(text, level) for text, level in levels if figure >= level]
    if repeat_every is not None:
        last = max([amount, *(level for _, level in levels)])
        count = int((figure - last) // Fraction(repeat_every)) if figure > last else 0
        for number in range(max(1, count - REPEATS + 1), count + 1):
            level = last + number * Fraction(repeat_every)
            reached_levels.append(Reached(f"+{number} × {_plain(repeat_every)}", level))
    return sorted(reached_levels, key=lambda one: one.level)


def _read_all(thresholds: Sequence[str]) -> list[Threshold]:
    """Those that are kept: they were checked when they were set."""
    return [read_threshold(text, repeats=True, what="forecast") for text in thresholds]


def next_level(
    figure: Fraction, *, amount: Fraction, thresholds: Sequence[str], repeat_every: Decimal | None = None
) -> Fraction | None:
    """The lowest threshold above the figure; None where there is none."""
    levels = [one.at(amount) for one in _read_all(thresholds)]
    ahead = [level for level in [*levels, amount] if level > figure]
    if repeat_every is not None and not ahead:
        last, step = max([amount, *levels]), Fraction(repeat_every)
        ahead = [last + ((figure - last) // step + 1) * step]
    return min(ahead, default=None)


def is_left(figure: Fraction, *, level: Fraction, amount: Fraction) -> bool:
    """Whether a figure is so far below a threshold that it counts as below again."""
    return figure < level - BACK_UNDER * amount or (figure <= 0 < level)


def state(
    used: Fraction,
    *,
    amount: Fraction,
    thresholds: Sequence[str],
    overdrawn: bool = False,
    limit: Fraction | None = None,
) -> QuotaState:
    """Over from the amount on, or from the `limit` where more can be borrowed; near from the first threshold on.

    A quota of nothing is over from the first second of use on; one of which the period before left nothing,
    `overdrawn`, is so at once.
    """
    if used >= (amount if limit is None else limit) and (used > 0 or overdrawn):
        return QuotaState.OVER
    return QuotaState.NEAR if reached(used, amount=amount, thresholds=thresholds) else QuotaState.OK


def carried(left: Fraction, *, amount: Fraction, percent: int, overdraft: bool) -> Fraction:
    """What the next period may use more: what one left, at most so many percent of the amount; or less, by what it
    used beyond its own, where overdrafts are carried."""
    if left < 0:
        return left if overdraft else Fraction(0)
    return min(left, amount * percent / 100)


def share(used: Fraction, amount: Fraction) -> Fraction | None:
    """Used per hundred of the amount; None of a quota of nothing."""
    return used * 100 / amount if amount else None


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"
