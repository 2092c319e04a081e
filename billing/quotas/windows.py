"""From when until when a quota counts now: days of the tenant's zone, or a window that ends at this second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from billing.catalog import billing_periods
from billing.catalog.billing_periods import Calendars
from billing.models import BillingPeriod, Quota
from billing.rules import period as rules
from billing.rules.days import Days
from billing.rules.quotas import Every

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Window:
    """The instants [start, end), and the days [first, end_day) that are counted whole.

    `edge`: of a rolling window the epoch seconds [since, until) of its first day, which are counted by the second.
    """

    start: datetime
    end: datetime
    first: date
    end_day: date
    edge: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Calendar:
    """How the days of a tenant go, and its billing periods in order."""

    days: Days
    periods: Sequence[BillingPeriod]

    def window(self, quota: Quota, moment: datetime) -> Window:
        """The period of the quota that holds the moment; of a fixed term, the term."""
        every = Every(quota.every)
        if every is Every.ROLLING:
            return self._rolling(moment, moment - timedelta(hours=quota.hours or 1))
        if every is Every.BILLING_PERIOD:
            return self._billing_period(quota, moment)
        if every is Every.TERM and quota.first_day is not None and quota.end_day is not None:
            return self._of_days(quota.first_day, quota.end_day)
        return self._of_days(*rules.civil_days(self.days.day_of(moment), every))

    def _of_days(self, first: date, end_day: date) -> Window:
        stretches = self.days.between(first, end_day)
        return Window(stretches[0][0], stretches[-1][1], first, end_day)

    def _rolling(self, moment: datetime, start: datetime) -> Window:
        first, end_day = self.days.day_of(start), self.days.day_of(moment) + DAY
        if self.days.between(first, first + DAY)[0][0] == start:
            return Window(start, moment, first, end_day)
        following = self.days.between(first + DAY, None)[0][0]
        edge = int(start.timestamp()), int(min(following, moment).timestamp())
        return Window(start, moment, first + DAY, max(end_day, first + DAY), edge)

    def _billing_period(self, quota: Quota, moment: datetime) -> Window:
        tenant = quota.tenant
        for row in self.periods:
            if row.start <= moment < row.end:
                return Window(row.start, row.end, *days_of(row))
        period = rules.billing_period(moment, zone=tenant.zone, anchor_day=tenant.anchor_day)
        start = max([period.start, *(row.end for row in self.periods if row.end <= moment)])
        first = start.astimezone(tenant.zone).date()
        return Window(start, period.end, first, rules.last_day(period.end, zone=tenant.zone) + DAY)


def days_of(period: BillingPeriod) -> tuple[date, date]:
    """The civil days [first, end) of a billing period, by its own zone."""
    zone = ZoneInfo(period.timezone)
    return period.start.astimezone(zone).date(), rules.last_day(period.end, zone=zone) + DAY


def load_calendars(
    quotas: Sequence[Quota], *, moment: datetime | None = None, calendars: Calendars | None = None
) -> Mapping[int, Calendar]:
    """By tenant. One query, none where `calendars` has the periods of all of them.

    Where some count what is billed at a moment, its period is there, kept or not.
    """
    tenants = {quota.tenant_id: quota.tenant for quota in quotas}
    if calendars is None:
        calendars = billing_periods.list_kept(tenants)
    by_tenant = {pk: list(calendars[pk]) for pk in tenants}
    billed = {quota.tenant_id for quota in quotas if quota.counts_corrections}
    if moment is not None and billed:
        spans = [(tenants[pk], moment, moment + SECOND) for pk in sorted(billed)]
        for period in billing_periods.missing_periods(spans, by_tenant):
            by_tenant[period.tenant_id].append(period)
    return {
        pk: Calendar(billing_periods.days_by(tenant.zone, by_tenant[pk]), by_tenant[pk])
        for pk, tenant in tenants.items()
    }
