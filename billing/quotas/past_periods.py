"""The periods of a quota that have ended: what each used, by what is known now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from django.db.models import F

from billing.models import Quota, QuotaPeriod
from billing.quotas import figures
from billing.quotas.pools import Loan
from billing.quotas.windows import DAY, Calendar, Window, load_calendars
from billing.rules import quotas as rules
from portal.core.tenants.models import Tenant

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

    @property
    def is_used_up(self) -> bool:
        """By the rule of the running period: with what it might borrow, and one of nothing by the first second."""
        overdrawn = self.period.carried < 0 and not self.amount
        limit = Fraction(self.period.limit)
        state = rules.state(self.used, amount=self.amount, limit=limit, thresholds=(), overdrawn=overdrawn)
        return state is rules.QuotaState.OVER


def load_past_periods(quota: Quota, *, moment: datetime) -> list[PastPeriod]:
    """The newest first; of one that has no periods, nothing. A fixed number of queries, however many they are."""
    ended = QuotaPeriod.objects.filter(quota=quota, end__lte=moment, end__gt=quota.counts_since)
    related = ended.select_related("quota__tenant", "quota__project", "quota__borrows_from")
    periods = list(related.order_by("-start")[:MOST])
    if quota.lends:
        return _load_lent(periods, moment)
    used = _load_used(periods, moment)
    return [PastPeriod(period, used[period.pk]) for period in periods]


def load_lent(tenant: Tenant, *, since: datetime, until: datetime, moment: datetime) -> list[PastPeriod]:
    """What the tenant's pools lent in periods that ended within (since, until], by name; of pools that have ended, too.

    A fixed number of queries, one where there is no pool.
    """
    ended = QuotaPeriod.objects.filter(
        quota__tenant=tenant,
        quota__lends=True,
        quota__counts_since__lt=F("end"),
        end__gt=since,
        end__lte=min(until, moment),
    )
    periods = list(ended.select_related("quota__tenant", "quota__project").order_by("quota__name", "start"))
    return [one for one in _load_lent(periods, moment) if one.used]


def _load_lent(periods: Sequence[QuotaPeriod], moment: datetime) -> list[PastPeriod]:
    """Of periods of pools, in their order."""
    if not periods:
        return []
    members = QuotaPeriod.objects.filter(
        quota__borrows_from__in={period.quota_id for period in periods},
        start__in={period.start for period in periods},
        end__lte=moment,
    )
    rows = list(members.select_related("quota__tenant", "quota__project").order_by("quota__name"))
    used = _load_used(rows, moment)
    loans: dict[tuple[int | None, datetime], list[Loan]] = defaultdict(list)
    for row in rows:
        lent = max(used[row.pk] - Fraction(row.available), Fraction(0))
        project = row.quota.project.name if row.quota.project else ""
        loans[row.quota.borrows_from_id, row.start].append(Loan(row.quota.name, project, lent, Fraction(0)))
    return [
        PastPeriod(period, sum((loan.used for loan in own), Fraction(0)), tuple(own))
        for period in periods
        for own in [loans[period.quota_id, period.start]]
    ]


def _load_used(periods: Sequence[QuotaPeriod], moment: datetime) -> dict[int, Fraction]:
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
