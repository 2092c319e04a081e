"""What a figure means for one quota: thresholds that it has reached now, and those that it is below again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from billing.models import Quota, QuotaCrossing, QuotaEvery, QuotaPeriod, QuotaWatched
from billing.quotas.figures import Figure
from billing.rules import quotas as rules
from billing.rules.money import rounded_text
from billing.rules.quotas import Reached

BETWEEN_FORECASTS = timedelta(hours=24)
"""Between two notices of one forecast threshold, whatever periods they are of."""


@dataclass(frozen=True, slots=True)
class Crossed:
    """A threshold that was reached since the pass before."""

    watched: QuotaWatched
    threshold: str
    level: Fraction
    figure: Fraction


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass found for a quota. `dropped`: left by a change of the quota, of which nobody is told."""

    quota: Quota
    figure: Figure
    start: datetime  # of its period
    crossed: Sequence[Crossed]
    cleared: Sequence[QuotaCrossing]
    dropped: Sequence[QuotaCrossing]
    stands: bool  # a threshold of what is used is reached
    silent: bool  # it was made just now
    late_level: Fraction | None = None  # what the days before the last pass come to by now

    @property
    def amount(self) -> Fraction:
        """What may be used in the period, of the quota's own: thresholds are of that."""
        return self.figure.amount(self.quota)

    @property
    def limit(self) -> Fraction:
        """The same with what it may borrow."""
        return self.figure.limit(self.quota)

    def is_late(self, one: Crossed) -> bool:
        """Whether it was reached by usage of days that had been looked at before."""
        return (
            one.watched == QuotaWatched.USED and self.late_level is not None and self.late_level >= one.level
        )

    def is_silent(self, one: Crossed) -> bool:
        """What a new quota has passed already is no news, but that all of it is used: the highest threshold says it."""
        if not self.silent or one.watched != QuotaWatched.USED:
            return False
        return self.figure.used < self.limit or one.level < max(
            other.level for other in self.crossed if other.watched == QuotaWatched.USED
        )

    @property
    def news(self) -> list[Crossed]:
        """What is told."""
        return [one for one in self.crossed if not self.is_silent(one)]

    @property
    def back_under(self) -> list[QuotaCrossing]:
        """Of thresholds of what is used, those that were told and are left again."""
        return [row for row in self.cleared if row.watched == QuotaWatched.USED and not row.silent]

    def new_rows(self, moment: datetime) -> Iterator[QuotaCrossing]:
        """To be kept."""
        for one in self.crossed:
            yield QuotaCrossing(
                tenant_id=self.quota.tenant_id,
                quota=self.quota,
                start=self.start,
                watched=one.watched,
                threshold=one.threshold,
                amount=Decimal(rounded_text(self.amount, 6)),
                used=Decimal(rounded_text(one.figure, 12)),
                at=moment,
                silent=self.is_silent(one),
                late=self.is_late(one),
            )

    def event_states(self) -> Iterator[str]:
        """`used 80%`, `forecast 100%`, `below 100%`, `stale`: one event each."""
        for one in self.news:
            yield f"{one.watched.value} {one.threshold}".strip()
        for row in self.back_under:
            yield f"below {row.threshold}"


def compare(
    quota: Quota,
    figure: Figure,
    before: QuotaPeriod | None,
    rows: Sequence[QuotaCrossing],
    *,
    moment: datetime,
) -> Outcome:
    """What is new. `before`: the period that was looked at last; `rows`: crossings of the present one, and of a day."""
    start = quota.created_at if quota.every == QuotaEvery.ROLLING else figure.window.start
    own = [row for row in rows if row.start == start]
    amount = figure.amount(quota)
    levels = rules.reached(
        figure.used, amount=amount, thresholds=quota.thresholds, repeat_every=quota.repeat_every
    )
    current = {row.threshold: row for row in own if row.watched == QuotaWatched.USED and not row.cleared_at}
    crossed = [
        Crossed(QuotaWatched.USED, one.text, one.level, figure.used)
        for one in levels
        if one.text not in current
    ]
    crossed += _forecasts(quota, figure, rows, start, moment)
    crossed += _stale(figure, own)
    cleared, dropped = _left(quota, figure, current, levels)
    stands = bool(levels) or len(cleared) + len(dropped) < len(current)
    if not figure.stale_since:
        cleared += [row for row in own if row.watched == QuotaWatched.STALE and not row.cleared_at]
    return Outcome(quota, figure, start, crossed, cleared, dropped, stands=stands, silent=before is None)


def _left(
    quota: Quota, figure: Figure, current: dict[str, QuotaCrossing], levels: Sequence[Reached]
) -> tuple[list[QuotaCrossing], list[QuotaCrossing]]:
    """Those that are below again, and those that are so by a change of the quota. Nothing is, where data is old."""
    amount, now = figure.amount(quota), {one.text for one in levels}
    known = {*quota.thresholds}
    cleared, dropped = [], []
    for text, row in current.items():
        if text in now:
            continue
        level = (
            rules.read_threshold(text, repeats=True, what="forecast").at(amount) if text in known else None
        )
        if Fraction(row.amount) != amount or (level is None and not text.startswith("+")):
            dropped.append(row)
        elif figure.stale_since:
            continue
        elif level is None or rules.is_left(figure.used, level=level, amount=amount):
            cleared.append(row)
    return cleared, dropped


def _forecasts(
    quota: Quota, figure: Figure, rows: Sequence[QuotaCrossing], start: datetime, moment: datetime
) -> Iterator[Crossed]:
    """Once a period, whatever the forecast does; never of what is used already, nor where data is old."""
    if figure.forecast is None or figure.stale_since:
        return
    amount = figure.amount(quota)
    before = {
        row.threshold
        for row in rows
        if row.watched == QuotaWatched.FORECAST
        and (row.start == start or row.at > moment - BETWEEN_FORECASTS)
    }
    for one in rules.reached(figure.forecast, amount=amount, thresholds=quota.forecasts):
        if one.text not in before and figure.used < one.level:
            yield Crossed(QuotaWatched.FORECAST, one.text, one.level, figure.forecast)


def _stale(figure: Figure, own: Sequence[QuotaCrossing]) -> Iterator[Crossed]:
    """That a cluster is not read any more: once until it is again."""
    stands = any(row.watched == QuotaWatched.STALE and not row.cleared_at for row in own)
    if figure.stale_since and not stands:
        yield Crossed(QuotaWatched.STALE, "", figure.used, figure.used)
