"""A tenant's billing periods: computed once from its zone and anchor day, then kept, gapless."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Max, Min

from billing.models import BillingPeriod
from billing.rules import period as rules
from portal.tenants.models import Tenant

SHORTEST = timedelta(days=2)
"""What a change of zone or anchor leaves over, when it is shorter, joins the period behind it."""

AROUND = timedelta(days=75)
"""Reaches beyond the month and the period before it, by whose zone a period may be named, too."""


def ensure(*, tenant: Tenant, since: datetime, until: datetime) -> None:
    """Make the periods that cover [since, until), at whole seconds; existing ones stay as they are."""
    kept = BillingPeriod.objects.filter(tenant=tenant).aggregate(first=Min("start"), last=Max("end"))
    first, last = kept["first"], kept["last"]
    add(
        tenant_id=tenant.pk,
        timezone=tenant.timezone,
        anchor_day=tenant.anchor_day,
        since=since,
        until=until,
        kept=None if first is None or last is None else (first, last),
    )


def add(
    *,
    tenant_id: int,
    timezone: str,
    anchor_day: int,
    since: datetime,
    until: datetime,
    kept: tuple[datetime, datetime] | None,
) -> None:
    """As `ensure`, for a caller that knows what is kept already, [first start, last end)."""
    made = _missing(zone=ZoneInfo(timezone), anchor_day=anchor_day, since=since, until=until, kept=kept)
    BillingPeriod.objects.bulk_create(
        [BillingPeriod(tenant_id=tenant_id, start=p.start, end=p.end, timezone=timezone) for p in made],
        ignore_conflicts=True,
    )


def starting_in(*, tenant: Tenant, year: int, month: int) -> BillingPeriod | None:
    """The tenant's period that starts in that month of its zone; None where none does.

    Where a change of anchor day makes two start in it: the first that is not closed, else the last.
    """
    asked = rules.period_starting_in(year, month, zone=tenant.zone, anchor_day=tenant.anchor_day)
    ensure(tenant=tenant, since=asked.start, until=asked.end)
    around = BillingPeriod.objects.filter(
        tenant=tenant,
        start__gte=asked.start - AROUND,
        start__lte=asked.start + AROUND,
    ).order_by("start")
    found = None
    zone = tenant.timezone
    for position, kept in enumerate(around):
        # A period after a change of zone starts where the old zone's month ends.
        zones = {kept.timezone, zone} if position else {kept.timezone}
        if max(_month(kept.start, name) for name in zones) == (year, month):
            found = kept
            if kept.closed_at is None:
                break
        zone = kept.timezone
    return found


def _month(moment: datetime, zone: str) -> tuple[int, int]:
    local = moment.astimezone(ZoneInfo(zone))
    return local.year, local.month


def as_rule(period: BillingPeriod) -> rules.Period:
    return rules.Period(period.start.astimezone(UTC), period.end.astimezone(UTC))


def _missing(
    *,
    zone: ZoneInfo,
    anchor_day: int,
    since: datetime,
    until: datetime,
    kept: tuple[datetime, datetime] | None,
) -> list[rules.Period]:
    """A tenant that changed its zone or anchor gets the new borders from its next period on."""
    made: list[rules.Period] = []
    if kept is None:
        start = rules.billing_period(since, zone=zone, anchor_day=anchor_day)
        made.append(start)
        kept = (start.start, start.end)
    first, last = kept
    while last < until:
        after = rules.billing_period(last, zone=zone, anchor_day=anchor_day)
        if after.end - last < SHORTEST:
            after = rules.billing_period(after.end, zone=zone, anchor_day=anchor_day)
        made.append(rules.Period(last, after.end))
        last = after.end
    while since < first:
        before = rules.billing_period(first - timedelta(seconds=1), zone=zone, anchor_day=anchor_day)
        made.append(rules.Period(before.start, first))
        first = before.start
    return made
