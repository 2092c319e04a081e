"""A tenant's billing periods: computed once from its zone and anchor day, then kept, gapless."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from itertools import islice
from zoneinfo import ZoneInfo

from django.db import connection, transaction
from django.db.models import F, Max, Min

from billing.catalog import tenant_lock
from billing.models import BillingPeriod
from billing.rules import period as rules
from billing.rules.days import Days
from portal.core.tenants.models import Tenant
from portal.prepared import instances, prepared_cursor

SHORTEST = timedelta(days=2)
"""What a change of zone or anchor leaves over, when it is shorter, joins the period behind it."""

AROUND = timedelta(days=75)
"""Reaches beyond the month and the period before it, by whose zone a period may be named, too."""


TOGETHER = 25
"""Tenants whose periods are made in one transaction."""

Span = tuple[Tenant, datetime, datetime]
"""A tenant, and from when to when its periods have to be there."""

Calendars = Mapping[int, Sequence[BillingPeriod]]
"""By tenant all periods that are kept, in order."""


class Lacking(Enum):
    """What becomes of periods in which something is owed and that are not kept yet."""

    CREATED = "created"  # a close is to bill them
    SUPPOSED = "supposed"  # as if they were there; nothing is written
    LEFT_OUT = "left out"


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
    ensure_spans([(tenant, since, until)])


def ensure_spans(spans: Sequence[Span]) -> None:
    """As `ensure`, for several tenants, each told once. One query where all are kept.

    Whoever makes some holds their tenants, as rating does: two that know nothing of each other would make periods with
    a hole between them, and what was used in it would be billed by none. Some at a time: where a month begins, all lack
    theirs, and outside a transaction nobody waits until the last one has its own.
    """
    reaches = _reaches(tenant for tenant, *_ in spans)
    waiting = iter(sorted((span for span in spans if not _is_within(span, reaches)), key=_by_tenant))
    while together := list(islice(waiting, TOGETHER)):
        _make_lacking(together)


def _by_tenant(span: Span) -> int:
    """In the order in which several tenants are locked."""
    return span[0].pk


def _make_lacking(lacking: Sequence[Span]) -> None:
    with transaction.atomic():
        tenant_lock.lock_tenants(tenant for tenant, *_ in lacking)
        reaches = _reaches(tenant for tenant, *_ in lacking)
        _keep(
            period
            for tenant, since, until in lacking
            for period in _periods(
                tenant.pk, tenant.timezone, tenant.anchor_day, since, until, reaches.get(tenant.pk)
            )
        )


def _is_within(span: Span, reaches: Mapping[int, tuple[datetime, datetime]]) -> bool:
    tenant, since, until = span
    reach = reaches.get(tenant.pk)
    return reach is not None and reach[0] <= since and until <= reach[1]


def list_kept(tenants: Iterable[int]) -> dict[int, list[BillingPeriod]]:
    """By tenant all periods that are kept, in order. One query."""
    by_tenant: dict[int, list[BillingPeriod]] = {pk: [] for pk in tenants}
    with prepared_cursor() as cursor:
        cursor.execute(_KEPT, {"tenants": list(by_tenant)})
        for (row,) in instances(cursor, BillingPeriod):
            by_tenant[row.tenant_id].append(row)
    return by_tenant


_KEPT = (
    "SELECT p.* FROM billing_billingperiod p WHERE p.tenant_id = ANY (%(tenants)s::bigint[]) ORDER BY p.start"
)


def missing_periods(
    spans: Sequence[Span],
    stored_periods: Mapping[int, Sequence[BillingPeriod]] | None = None,
) -> list[BillingPeriod]:
    """What `ensure_spans` would make, and does not: their ids are below zero and those of `stored_periods`, so nothing
    refers to them.

    One query; none where `stored_periods` has all that are stored of each tenant, in order.
    """
    stored = stored_periods or {}
    reaches = {pk: (periods[0].start, periods[-1].end) for pk, periods in stored.items() if periods}
    unread_tenants = [tenant for tenant, *_ in spans if tenant.pk not in stored]
    if unread_tenants:
        reaches |= _reaches(unread_tenants)
    lowest = min((period.pk for rows in stored.values() for period in rows), default=0)
    periods: list[BillingPeriod] = []
    for tenant, since, until in spans:
        missing = _missing(
            zone=tenant.zone,
            anchor_day=tenant.anchor_day,
            since=since,
            until=until,
            reach=reaches.get(tenant.pk),
        )
        periods += [
            BillingPeriod(
                pk=min(lowest, 0) - len(periods) - place,
                tenant_id=tenant.pk,
                start=p.start,
                end=p.end,
                timezone=tenant.timezone,
                whole_seconds=p.whole or None,
            )
            for place, p in enumerate(missing, 1)
        ]
    return periods


def make_missing(
    *, tenant: Tenant, since: datetime, until: datetime, stored: Sequence[BillingPeriod]
) -> list[BillingPeriod]:
    """As `ensure`, where those `stored` are known. One query. Raises IntegrityError where one was made meanwhile."""
    reach = (stored[0].start, stored[-1].end) if stored else None
    return BillingPeriod.objects.bulk_create(
        _periods(tenant.pk, tenant.timezone, tenant.anchor_day, since, until, reach)
    )


def beginning(*, tenant: Tenant, moment: datetime) -> datetime:
    """Where the tenant's period that holds the moment begins, kept or not, wherever it has moved. Two queries."""
    periods = BillingPeriod.objects.filter(tenant=tenant)
    period = periods.filter(start__lte=moment, end__gt=moment).first()
    if period is not None:
        return as_rule(period).start
    last = periods.filter(end__lte=moment).order_by("-end").first()
    if last is not None:
        zone, anchor_day, end = tenant.zone, tenant.anchor_day, as_rule(last).end
        after = _missing(
            zone=zone, anchor_day=anchor_day, since=end, until=end + timedelta(seconds=1), reach=(end, end)
        )
        if after[0].contains(moment):
            return after[0].start
    return rules.billing_period(moment, zone=tenant.zone, anchor_day=tenant.anchor_day).start


def _reaches(tenants: Iterable[Tenant]) -> dict[int, tuple[datetime, datetime]]:
    """By tenant from when to when periods are kept."""
    rows = BillingPeriod.objects.filter(tenant__in=list(tenants)).values("tenant")
    reach = rows.annotate(first=Min("start"), last=Max("end")).values_list("tenant", "first", "last")
    return {tenant: (first, last) for tenant, first, last in reach}


def add(
    *,
    tenant_id: int,
    timezone: str,
    anchor_day: int,
    since: datetime,
    until: datetime,
    reach: tuple[datetime, datetime] | None,
) -> None:
    """As `ensure`, for a caller that knows what is kept already, [first start, last end)."""
    _keep(_periods(tenant_id, timezone, anchor_day, since, until, reach))


def _periods(
    tenant_id: int,
    timezone: str,
    anchor_day: int,
    since: datetime,
    until: datetime,
    reach: tuple[datetime, datetime] | None,
) -> list[BillingPeriod]:
    missing = _missing(zone=ZoneInfo(timezone), anchor_day=anchor_day, since=since, until=until, reach=reach)
    return [
        BillingPeriod(
            tenant_id=tenant_id, start=p.start, end=p.end, timezone=timezone, whole_seconds=p.whole or None
        )
        for p in missing
    ]


def _keep(periods: Iterable[BillingPeriod]) -> None:
    """What somebody else has made meanwhile stays as it is."""
    BillingPeriod.objects.bulk_create(list(periods), ignore_conflicts=True)


def starting_in(*, tenant: Tenant, year: int, month: int) -> BillingPeriod | None:
    """The tenant's period that starts in that month of its zone; None where none does.

    Where changes of the anchor day make several start in it: the first that is not closed, else the last.
    """
    return periods_starting_in([tenant], year=year, month=month).get(tenant.pk)


def periods_starting_in(
    tenants: Iterable[Tenant], *, year: int, month: int, making: bool = True
) -> dict[int, BillingPeriod]:
    """As `starting_in`, by tenant; those without such a period are left out. One query where all are kept.

    Who only looks at what is kept says `making=False`.
    """
    rule_periods = {
        tenant: rules.period_starting_in(year, month, zone=tenant.zone, anchor_day=tenant.anchor_day)
        for tenant in tenants
    }
    existing = _around(rule_periods)
    bare = {
        tenant: period
        for tenant, period in rule_periods.items()
        if making and not _covered(period, existing.get(tenant.pk, []))
    }
    for tenant, period in bare.items():
        ensure(tenant=tenant, since=period.start, until=period.end)
    existing |= _around(bare)
    periods = {
        tenant: _named(existing.get(tenant.pk, []), tenant.timezone, (year, month)) for tenant in rule_periods
    }
    return {tenant.pk: period for tenant, period in periods.items() if period is not None}


def open_periods(tenants: Iterable[Tenant], *, year: int, month: int) -> dict[int, list[BillingPeriod]]:
    """By tenant the periods that start in that month and are open, in order: changed anchor days make several.

    One query. For a caller that has asked for the periods of that month before, so that they are kept.
    """
    rule_periods = {
        tenant: rules.period_starting_in(year, month, zone=tenant.zone, anchor_day=tenant.anchor_day)
        for tenant in tenants
    }
    zones = {tenant.pk: tenant.timezone for tenant in rule_periods}
    named = {
        pk: _all_named(periods, zones[pk], (year, month)) for pk, periods in _around(rule_periods).items()
    }
    return {pk: [row for row in rows if row.closed_at is None] for pk, rows in named.items()}


def _around(rule_periods: Mapping[Tenant, rules.Period]) -> dict[int, list[BillingPeriod]]:
    """The periods that start near those asked for, by tenant, in order."""
    if not rule_periods:
        return {}
    near = BillingPeriod.objects.filter(
        tenant__in=rule_periods,
        start__gte=min(period.start for period in rule_periods.values()) - AROUND,
        start__lte=max(period.start for period in rule_periods.values()) + AROUND,
    )
    starts = {tenant.pk: period.start for tenant, period in rule_periods.items()}
    periods: dict[int, list[BillingPeriod]] = defaultdict(list)
    for period in near.order_by("start"):
        if abs(period.start - starts[period.tenant_id]) <= AROUND:
            periods[period.tenant_id].append(period)
    return periods


def _covered(period: rules.Period, existing: Sequence[BillingPeriod]) -> bool:
    """Whether the periods, which follow each other without a gap, hold all of it."""
    return bool(existing) and existing[0].start <= period.start and period.end <= existing[-1].end


def _named(periods: Sequence[BillingPeriod], zone: str, month: tuple[int, int]) -> BillingPeriod | None:
    """The one that people call by that month: the first that is open, else the last."""
    rows = _all_named(periods, zone, month)
    return next((row for row in rows if row.closed_at is None), rows[-1] if rows else None)


def _all_named(periods: Sequence[BillingPeriod], zone: str, month: tuple[int, int]) -> list[BillingPeriod]:
    """Those that start in that month; `zone` is the tenant's own."""
    rows = []
    for position, period in enumerate(periods):
        # A period after a change of zone starts where the old zone's month ends.
        if month_of(period, zone if position else "") == month:
            rows.append(period)
        zone = period.timezone
    return rows


def month_of(period: BillingPeriod, zone_before: str) -> tuple[int, int]:
    """The month by which people call it; `zone_before` is that of the period before, "" where there is none."""
    return max(_month(period.start, zone) for zone in {period.timezone, zone_before or period.timezone})


def _month(moment: datetime, zone: str) -> tuple[int, int]:
    local = moment.astimezone(ZoneInfo(zone))
    return local.year, local.month


def days_of(tenants: Iterable[Tenant]) -> Mapping[int, Days]:
    """By tenant how its days go. One query, which finds rows of those alone that have moved to another zone."""
    others: dict[int, list[BillingPeriod]] = defaultdict(list)
    zones = {tenant.pk: tenant.zone for tenant in tenants}
    moved = BillingPeriod.objects.filter(tenant__in=zones).exclude(timezone=F("tenant__timezone"))
    for period in moved.order_by("start"):
        others[period.tenant_id].append(period)
    return {pk: days_by(zone, others[pk]) for pk, zone in zones.items()}


def days_by(zone: ZoneInfo, periods: Iterable[BillingPeriod]) -> Days:
    """How the days of a tenant in this zone go, whose periods are these, by `start`."""
    others = [
        (as_rule(period), ZoneInfo(period.timezone)) for period in periods if period.timezone != zone.key
    ]
    return Days(zone, tuple(others))


def as_rule(period: BillingPeriod) -> rules.Period:
    """As the arithmetic of periods takes it, in UTC."""
    return rules.Period(
        period.start.astimezone(UTC), period.end.astimezone(UTC), whole=period.whole_seconds or 0
    )


def name(period: BillingPeriod) -> str:
    """How people call it: "March 2026", or its first and last day."""
    return rules.label(as_rule(period), ZoneInfo(period.timezone))


def day_of(moment: datetime, period: BillingPeriod) -> date:
    """The civil day of `moment` where the period is: what is issued then is dated so."""
    return moment.astimezone(ZoneInfo(period.timezone)).date()


def last_day(period: BillingPeriod) -> date:
    """The last civil day that is in it."""
    return rules.last_day(period.end, zone=ZoneInfo(period.timezone))


def _missing(
    *,
    zone: ZoneInfo,
    anchor_day: int,
    since: datetime,
    until: datetime,
    reach: tuple[datetime, datetime] | None,
) -> list[rules.Period]:
    """A tenant that changed its zone or anchor gets the new borders from its next period on."""
    missing: list[rules.Period] = []
    if reach is None:
        start = rules.billing_period(since, zone=zone, anchor_day=anchor_day)
        missing.append(start)
        reach = (start.start, start.end)
    first, last = reach
    while last < until:
        after = rules.billing_period(last, zone=zone, anchor_day=anchor_day)
        if after.end - last < SHORTEST:
            after = rules.billing_period(after.end, zone=zone, anchor_day=anchor_day)
        missing.append(_part(after, last, after.end))
        last = after.end
    while since < first:
        before = rules.billing_period(first - timedelta(seconds=1), zone=zone, anchor_day=anchor_day)
        missing.append(_part(before, before.start, first))
        first = before.start
    return missing


def _part(whole: rules.Period, start: datetime, end: datetime) -> rules.Period:
    """What is left of a period by a changed anchor day. A change of zone, of hours alone, leaves it whole."""
    missing = whole.seconds - rules.Period(start, end).seconds
    return rules.Period(start, end, whole=whole.seconds if abs(missing) >= SHORTEST.total_seconds() else 0)
