"""The periods of a quota that have ended: what each used, by what is known now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from django.db.models import F

from billing.invoicing.statement_inputs import StatementInputs
from billing.models import Quota, QuotaPeriod
from billing.quotas import figures
from billing.quotas.figures import FigureInputs
from billing.quotas.pools import Loan
from billing.quotas.status import QuotaStatus
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
    periods = _load_periods(quota, moment)
    return periods.valued(_load_used(periods.counted, moment))


def load_status_and_past(quota: Quota, *, moment: datetime) -> tuple[QuotaStatus, list[PastPeriod]]:
    """How it stands, and its `load_past_periods`: read together."""
    periods, inputs = _load_periods(quota, moment), StatementInputs(frozenset([quota.tenant_id]))
    calendar = load_calendars([quota], calendars=inputs.calendars)[quota.tenant_id]
    views = [(period.quota, _window(period, calendar)) for period in periods.counted]
    now, others = figures.load_figures_and(
        [quota], views, moment=moment, inputs=FigureInputs(statements=inputs)
    )
    used = {period.pk: one.used for period, one in zip(periods.counted, others, strict=True)}
    return QuotaStatus(quota, now[quota.pk]), periods.valued(used)


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
    rows = list(ended.select_related("quota__tenant", "quota__project").order_by("quota__name", "start"))
    periods = _Periods(rows, _load_members(rows, moment), lend=True)
    return [one for one in periods.valued(_load_used(periods.counted, moment)) if one.used]


@dataclass(frozen=True, slots=True)
class _Periods:
    """Periods that have ended, and those whose use tells what they used: of pools those of all who borrow."""

    rows: Sequence[QuotaPeriod]
    counted: Sequence[QuotaPeriod]
    lend: bool

    def valued(self, used: Mapping[int, Fraction]) -> list[PastPeriod]:
        """In their order, by what each of those that count used."""
        if not self.lend:
            return [PastPeriod(row, used[row.pk]) for row in self.rows]
        loans: dict[tuple[int | None, datetime], list[Loan]] = defaultdict(list)
        for row in self.counted:
            lent = max(used[row.pk] - Fraction(row.available), Fraction(0))
            project = row.quota.project.name if row.quota.project else ""
            loan = Loan(row.quota.name, project, lent, Fraction(0))
            loans[row.quota.borrows_from_id, row.start].append(loan)
        return [
            PastPeriod(row, sum((loan.used for loan in own), Fraction(0)), tuple(own))
            for row in self.rows
            for own in [loans[row.quota_id, row.start]]
        ]


def _load_periods(quota: Quota, moment: datetime) -> _Periods:
    ended = QuotaPeriod.objects.filter(quota=quota, end__lte=moment, end__gt=quota.counts_since)
    related = ended.select_related("quota__tenant", "quota__project", "quota__borrows_from")
    rows = list(related.order_by("-start")[:MOST])
    return _Periods(rows, _load_members(rows, moment) if quota.lends else rows, quota.lends)


def _load_members(rows: Sequence[QuotaPeriod], moment: datetime) -> list[QuotaPeriod]:
    """Of pools' periods those of all who borrow, by name."""
    if not rows:
        return []
    members = QuotaPeriod.objects.filter(
        quota__borrows_from__in={row.quota_id for row in rows},
        start__in={row.start for row in rows},
        end__lte=moment,
    )
    return list(members.select_related("quota__tenant", "quota__project").order_by("quota__name"))


def _load_used(periods: Sequence[QuotaPeriod], moment: datetime) -> dict[int, Fraction]:
    if not periods:
        return {}
    inputs = StatementInputs(frozenset(period.quota.tenant_id for period in periods))
    calendars = load_calendars([period.quota for period in periods], calendars=inputs.calendars)
    views = {
        period.pk: (period.quota, _window(period, calendars[period.quota.tenant_id])) for period in periods
    }
    counted = figures.load_views(views, calendars, moment, inputs, forecasts=False)
    return {key: one.used for key, one in counted.items()}


def _window(period: QuotaPeriod, calendar: Calendar) -> Window:
    end = period.end or period.start
    first, last = calendar.days.day_of(period.start), calendar.days.day_of(end - timedelta(seconds=1))
    return Window(period.start, end, first, last + DAY)
