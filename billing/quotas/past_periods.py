"""The periods of a quota that have ended: what each used, by what is known now."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from billing.models import Quota, QuotaPeriod
from billing.quotas import figures
from billing.quotas.pools import Loan
from billing.quotas.windows import DAY, Calendar, Window, load_calendars

MOST = 24
"""Periods that are shown."""


@dataclass(frozen=True, slots=True)
class PastPeriod:
    """One of them: the amount as it was when it was looked at last, and what is used of it with all that came late."""

    period: QuotaPeriod
    used: Fraction
    loans: tuple[Loan, ...] = ()  # of a pool, in order of names

    @property
    def amount(self) -> Fraction:
        return Fraction(self.period.available)


def load_past_periods(quota: Quota, *, moment: datetime) -> list[PastPeriod]:
    """The newest first; of one that has no periods, nothing. A fixed number of queries, however many they are."""
    ended = QuotaPeriod.objects.filter(quota=quota, end__lte=moment, end__gt=quota.counts_since)
    periods = list(ended.select_related("quota__tenant", "quota__project").order_by("-start")[:MOST])
    if not quota.lends:
        used = _load_used(periods, moment)
        return [PastPeriod(period, used[period.pk]) for period in periods]
    members = QuotaPeriod.objects.filter(
        quota__borrows_from=quota, start__in=[period.start for period in periods], end__lte=moment
    )
    rows = list(members.select_related("quota__tenant", "quota__project").order_by("quota__name"))
    used = _load_used(rows, moment)
    loans: dict[datetime, list[Loan]] = defaultdict(list)
    for row in rows:
        lent = max(used[row.pk] - Fraction(row.available), Fraction(0))
        project = row.quota.project.name if row.quota.project else ""
        loans[row.start].append(Loan(row.quota.name, project, lent, Fraction(0)))
    return [
        PastPeriod(period, sum((loan.used for loan in own), Fraction(0)), tuple(own))
        for period in periods
        for own in [loans[period.start]]
    ]


def _load_used(periods: list[QuotaPeriod], moment: datetime) -> dict[int, Fraction]:
    if not periods:
        return {}
    calendars = load_calendars([period.quota for period in periods])
    views = {
        period.pk: (period.quota, _window(period, calendars[period.quota.tenant_id])) for period in periods
    }
    return {
        key: one.used for key, one in figures.load_views(views, calendars, moment, forecasts=False).items()
    }


def _window(period: QuotaPeriod, calendar: Calendar) -> Window:
    end = period.end or period.start
    first, last = calendar.days.day_of(period.start), calendar.days.day_of(end - timedelta(seconds=1))
    return Window(period.start, end, first, last + DAY)
