"""A tenant's billing periods: computed once from its zone and anchor day, then kept, gapless."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import Max, Min

from billing.models import BillingPeriod
from billing.rules import period as rules
from portal.tenants.models import Tenant

SHORTEST = timedelta(days=2)
"""What a change of zone or anchor leaves over, when it is shorter, joins the period behind it."""

AROUND = timedelta(days=75)
"""Reaches beyond the month and the period before it, by whose zone a period may be named, too."""


def marks() -> list[int]:
    """The seconds of the hour at which billing periods change, and the full hour: `[0, 1800]` with a tenant in India.

    A live pass moves what runs on past these only, so that a period that has ended is seen to its last second.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            'SELECT 0 UNION SELECT (extract(epoch FROM "end")::bigint % 3600)::int'
            " FROM billing_billingperiod ORDER BY 1"
        )
        return [second for (second,) in cursor.fetchall()]


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
    return starting_in_each([tenant], year=year, month=month).get(tenant.pk)


def starting_in_each(tenants: Iterable[Tenant], *, year: int, month: int) -> dict[int, BillingPeriod]:
    """As `starting_in`, by tenant; those without such a period are left out. One query where all are kept."""
    asked = {
        tenant: rules.period_starting_in(year, month, zone=tenant.zone, anchor_day=tenant.anchor_day)
        for tenant in tenants
    }
    kept = _around(asked)
    bare = {
        tenant: period for tenant, period in asked.items() if not _covered(period, kept.get(tenant.pk, []))
    }
    for tenant, period in bare.items():
        ensure(tenant=tenant, since=period.start, until=period.end)
    kept |= _around(bare)
    found = {tenant: _named(kept.get(tenant.pk, []), tenant.timezone, (year, month)) for tenant in asked}
    return {tenant.pk: period for tenant, period in found.items() if period is not None}


def _around(asked: Mapping[Tenant, rules.Period]) -> dict[int, list[BillingPeriod]]:
    """The periods that start near those asked for, by tenant, in order."""
    if not asked:
        return {}
    near = BillingPeriod.objects.filter(
        tenant__in=asked,
        start__gte=min(period.start for period in asked.values()) - AROUND,
        start__lte=max(period.start for period in asked.values()) + AROUND,
    )
    starts = {tenant.pk: period.start for tenant, period in asked.items()}
    found: dict[int, list[BillingPeriod]] = defaultdict(list)
    for period in near.order_by("start"):
        if abs(period.start - starts[period.tenant_id]) <= AROUND:
            found[period.tenant_id].append(period)
    return found


def _covered(asked: rules.Period, kept: Sequence[BillingPeriod]) -> bool:
    """Whether the periods, which follow each other without a gap, hold all of it."""
    return bool(kept) and kept[0].start <= asked.start and asked.end <= kept[-1].end


def _named(kept: Sequence[BillingPeriod], zone: str, month: tuple[int, int]) -> BillingPeriod | None:
    """The one that people call by that month; `zone` is the tenant's own."""
    found = None
    for position, period in enumerate(kept):
        # A period after a change of zone starts where the old zone's month ends.
        zones = {period.timezone, zone} if position else {period.timezone}
        if max(_month(period.start, name) for name in zones) == month:
            found = period
            if period.closed_at is None:
                break
        zone = period.timezone
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
