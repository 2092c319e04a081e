"""What the periods before give a quota, or take from it: which of them count, and what each hands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from billing.models import Quota, QuotaPeriod
from billing.quotas.windows import Calendar, Window
from billing.rules import quotas as rules
from billing.rules.money import Money, rounded_text

MOST_PERIODS = 40
"""That are gone back to at most, where nobody looked at a quota for so long: the oldest begins without anything."""
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Chain:
    """The periods of a quota whose rest reaches the present one, the oldest first: one, if that was looked at.

    `had` is what the first had, as it was last looked at; None: the quota's amount.
    """

    quota: Quota
    windows: Sequence[Window]
    had: Fraction | None

    def carried(self, turn: int, *, before: Fraction, used: Fraction) -> Fraction:
        """What the period at that place hands on, which got so much from the one `before` it."""
        amount = Fraction(self.quota.amount)
        had = self.had if turn == 0 and self.had is not None else amount + before
        percent, overdraft = self.quota.carry_over, self.quota.carry_overdraft
        value = rules.carried(had - used, amount=amount, percent=percent, overdraft=overdraft)
        return _rounded(value, self.quota.unit)


Past = Mapping[int, tuple[Chain, int]]
"""Periods whose rest reaches the present one, those of a quota from the oldest on: a chain, and a place in it."""


def list_past(
    quotas: Sequence[Quota],
    *,
    windows: Mapping[int, Window],
    calendars: Mapping[int, Calendar],
    newest: Mapping[int, QuotaPeriod] | None = None,
) -> Past:
    """Of the quotas that carry over, whose present windows these are; by keys below zero, which no quota has.

    One query, none without such quotas, nor with `newest`, the last period that has ended of each. Periods in which a
    quota was made, or began to count something else, hand on nothing.
    """
    carrying = [quota for quota in quotas if quota.carries]
    if newest is None:
        newest = _load_newest(carrying, windows)
    chains = [
        _chain(quota, windows[quota.pk], calendars[quota.tenant_id], newest.get(quota.pk))
        for quota in carrying
    ]
    places = [(chain, turn) for chain in chains for turn in range(len(chain.windows))]
    return {-number: place for number, place in enumerate(places, 1)}


def carried_by_quota(past: Past, used: Mapping[int, Fraction]) -> dict[int, Fraction]:
    """What the period before left each of them, by what each of these periods used."""
    carried: dict[int, Fraction] = {}
    for key, (chain, turn) in past.items():
        before = carried.get(chain.quota.pk, Fraction(0))
        carried[chain.quota.pk] = chain.carried(turn, before=before, used=used[key])
    return carried


def _load_newest(carrying: Sequence[Quota], now: Mapping[int, Window]) -> Mapping[int, QuotaPeriod]:
    if not carrying:
        return {}
    ended = QuotaPeriod.objects.filter(
        quota__in=carrying, end__lte=max(now[quota.pk].start for quota in carrying)
    )
    return {row.quota_id: row for row in ended.order_by("quota", "-start").distinct("quota")}


def _chain(quota: Quota, window: Window, calendar: Calendar, row: QuotaPeriod | None) -> Chain:
    windows: list[Window] = []
    while len(windows) < MOST_PERIODS:
        window = calendar.window(quota, window.start - SECOND)
        if window.start < quota.counts_since:
            break
        windows.insert(0, window)
        if row is not None and (window.start, window.end) == (row.start, row.end):
            return Chain(quota, windows, Fraction(row.amount + row.carried))
    return Chain(quota, windows, None)


def _rounded(value: Fraction, unit: str) -> Fraction:
    """As an amount can be set: in the smallest unit of the currency, or thousandths of a GPU-hour."""
    if unit:
        return Money(value, unit).rounded().amount
    return Fraction(rounded_text(value, rules.GPU_HOUR_PLACES))
