"""What seconds of use are worth to a quota."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from billing.models import BillingPeriod, Quota, QuotaMeasure
from billing.quotas import counters
from billing.quotas.counters import Count, Span
from billing.quotas.price_tags import PriceTag
from billing.quotas.valued_use import Lines
from billing.quotas.windows import Window
from billing.rules.money import Money


@dataclass(slots=True)
class Piece:
    """A part of a quota's window that lies in one billing period, or in none that is kept."""

    want: int
    place: Range | None
    is_whole: bool = False  # all of the period is in the window
    edge: int | None = None  # instead of the want: of count_edges


@dataclass(frozen=True, slots=True)
class Range:
    """A billing period, or a stretch that none is kept of: in each, use at one price is one line."""

    span: Span
    period: BillingPeriod | None


@dataclass(slots=True)
class Sum:
    """In units of the measure: as rated, what has grown since, and in a second; `plain` at first units' prices."""

    rated: Fraction = Fraction(0)
    grown: Fraction = Fraction(0)
    speed: Fraction = Fraction(0)
    plain: Fraction = Fraction(0)
    use: Fraction = Fraction(0)  # of rated and grown, what follows use


@dataclass(frozen=True, slots=True)
class Value:
    """What seconds of use are worth to a quota."""

    quota: Quota
    prices: Mapping[int, PriceTag]

    def sum(
        self,
        pieces: Sequence[Piece],
        counts: Sequence[Count],
        edges: Sequence[Mapping[int, Count]],
        valued: Mapping[Range, tuple[Lines, Lines]],
        window: Window,
    ) -> Sum:
        total = Sum()
        for piece in pieces:
            parts = [counts[piece.want]]
            if piece.edge is not None:
                period = piece.place.period.pk if piece.place and piece.place.period else None
                parts += [
                    count for pk, count in edges[piece.edge].items() if piece.place is None or pk == period
                ]
            for count in parts:
                self._add(total, count, valued[piece.place] if piece.place else None)
            if piece.place is not None and piece.is_whole and self.quota.is_of_whole_tenant:
                before, after = valued[piece.place]
                terms = self._of_unit(before.terms)
                total.rated += terms
                total.grown += self._of_unit(after.terms) - terms
                if self.quota.with_paid:
                    total.rated += self._of_unit(after.paid)
                if self.quota.counts_corrections:  # what lies in the window, its use says already
                    total.rated += self._of_unit(
                        amount for end, amount in after.corrections if end <= window.start
                    )
        return total

    def _add(self, total: Sum, count: Count, valued: tuple[Lines, Lines] | None) -> None:
        seconds = count.whole
        plain = self.plain(seconds)
        if valued is not None:
            rated, whole = self._in_lines(count.rated, valued[0]), self._in_lines(seconds, valued[1])
        else:
            rated, whole = self.plain(count.rated) if count.grown else plain, plain
        total.rated += rated
        total.grown += whole - rated
        total.use += whole
        total.plain += plain
        total.speed += self.plain(count.speed)

    def _in_lines(self, seconds: Mapping[counters.Key, Fraction], valued: Lines) -> Fraction:
        return sum(
            (
                valued.lines[key].part(used)
                for key, used in seconds.items()
                if key in valued.lines and valued.lines[key].amount.currency == self.quota.unit
            ),
            Fraction(0),
        )

    def plain(self, seconds: Mapping[counters.Key, Fraction]) -> Fraction:
        """Without tiers and allowances, which look at totals."""
        if self.quota.measure == QuotaMeasure.GPU_HOURS:
            return counters.gpu_hours(seconds.items())
        return sum((self.at_price(key.price, used) for key, used in seconds.items()), Fraction(0))

    def at_price(self, price: int | None, seconds: Fraction) -> Fraction:
        """What so many seconds cost in the quota's unit, at the first unit's price; of credits, out of wallets."""
        priced = self.prices.get(price or 0)
        if priced is None or priced.tag.currency != self.quota.unit:
            return Fraction(0)
        if self.quota.measure == QuotaMeasure.CREDITS and not priced.is_prepaid:
            return Fraction(0)
        return priced.a_second * seconds

    def _of_unit(self, amounts: Iterable[Money]) -> Fraction:
        return sum((money.amount for money in amounts if money.currency == self.quota.unit), Fraction(0))


def plain_value(
    quota: Quota, prices: Mapping[int, PriceTag], seconds: Mapping[counters.Key, Fraction]
) -> Fraction:
    """What seconds of use are worth to the quota without tiers and allowances."""
    return Value(quota, prices).plain(seconds)
