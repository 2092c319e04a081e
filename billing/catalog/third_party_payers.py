"""Who pays for whom: a tenant's usage goes on the invoices of another one for a time.

Plan, prices, tiers and included hours stay those of the tenant that uses; only whose invoice it goes on differs.
None of these functions rates anything: the caller rates the tenant again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from django.db import transaction
from django.db.models import Q

from billing.catalog import billing_periods
from billing.catalog.billing_periods import Calendars
from billing.catalog.plans import PlanError
from billing.catalog.tenant_lock import lock_tenants
from billing.models import Archive, BillingPeriod, Payer, Settles, Subscription
from billing.rules.days import NEVER, Days
from portal.core.tenants.models import Tenant
from portal.prepared import instances, prepared_cursor


class PayerError(PlanError):
    """Nobody can pay so; the message says why and what to do instead."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """`payer` paid for `tenant` during [since, until)."""

    tenant: int
    payer: int
    since: datetime
    until: datetime | None

    def overlaps(self, start: datetime, end: datetime) -> bool:
        """Whether it holds at some second of [start, end)."""
        return self.since < end and (self.until is None or self.until > start)


@transaction.atomic
def pay_for(*, payer: Tenant, tenant: Tenant, since: date, until: date | None = None) -> Payer:
    """Have `payer` pay for what `tenant` uses during [since, until), days of the tenant's zone.

    Whoever pays at `since` ends there. One that pays already stays since when it did, with another end where `until`
    says one. Raises PayerError where somebody else pays later, where one of them has left or is on both sides at one
    time, and where their plans are in different currencies.
    """
    tenants = lock_tenants([payer, tenant])
    payer, tenant = tenants[payer.pk], tenants[tenant.pk]
    if until is not None and until <= since:
        raise PayerError(
            "payer-ends-before-it-begins", payer=payer.slug, tenant=tenant.slug, until=until, since=since
        )
    if payer == tenant:
        raise PayerError("payer-is-tenant", tenant=tenant.slug)
    payers = [row for row in tenant.payers.order_by("since") if row.until != row.since]
    present = next(
        (row for row in payers if row.since <= since and (row.until is None or row.until > since)), None
    )
    if present is not None and present.payer == payer and until in {None, present.until}:
        return present
    _refuse_archived([payer, tenant])
    _refuse_chain(payer, tenant, since, until)
    later = next((row for row in payers if row.since > since and (until is None or row.since < until)), None)
    if later is not None:
        raise PayerError(
            "payer-planned", payer=later.payer.slug, tenant=tenant.slug, since=later.since, other=payer.slug
        )
    if present is not None and present.payer == payer and until is not None:
        row = _ended(present, until)
    else:
        if present is not None:
            _ended(present, since)
        row = Payer.objects.create(tenant=tenant, payer=payer, since=since, until=until)
    refuse_other_currency(tenant)
    return row


@transaction.atomic
def end_payer(*, row: Payer, on: date) -> Payer:
    """Have it pay no longer from that day on; where that is no later than its first, it never did. Again, the same.

    A later day than before has it pay on. Raises PayerError where somebody else pays then, or one of them has left.
    """
    lock_tenants([row.payer, row.tenant])
    row = Payer.objects.select_related("tenant", "payer").get(pk=row.pk)
    following = Payer.objects.filter(tenant=row.tenant, since__gt=row.since, since__lt=on).first()
    if following is not None and following.until != following.since:
        raise PayerError("payer-follows", tenant=row.tenant.slug, since=following.since)
    if row.until is not None and on > row.until:
        _refuse_archived([row.payer, row.tenant])
    _refuse_chain(row.payer, row.tenant, row.since, max(on, row.since), but=row)
    row = _ended(row, max(on, row.since))
    refuse_other_currency(row.tenant)
    return row


def refuse_other_currency(tenant: Tenant) -> None:
    """Raises PayerError where the tenant, or whom it pays for, is on a plan of another currency than the payer's."""
    for row in Payer.objects.filter(Q(tenant=tenant) | Q(payer=tenant)).select_related("tenant", "payer"):
        stretches = _stretches([row])
        used, paid = (_currencies(party, stretches) for party in (row.tenant, row.payer))
        if used and paid and used != paid:
            raise PayerError(
                "payer-currency",
                tenant=row.tenant.slug,
                used=" and ".join(sorted(used)),
                payer=row.payer.slug,
                since=row.since,
                paid=" and ".join(sorted(paid)),
            )


def stretches_of(*, tenants: Iterable[int] = (), payers: Iterable[int] = ()) -> list[Stretch]:
    """When anybody paid for one of these tenants, or one of these payers for anybody, in order. Two queries."""
    rows = Payer.objects.filter(Q(tenant__in=list(tenants)) | Q(payer__in=list(payers))).select_related(
        "tenant"
    )
    return _stretches(list(rows.order_by("since", "pk")))


@dataclass(frozen=True, slots=True)
class PartiesPeriods:
    """Who pays for some tenants, and for whom these pay, in order; and all periods that are kept of those who use."""

    calendars: Calendars
    payers: Sequence[Payer]  # with both tenants

    def stretches(self) -> list[Stretch]:
        """As `stretches_of`."""
        days = {
            row.tenant_id: billing_periods.days_by(row.tenant.zone, self.calendars[row.tenant_id])
            for row in self.payers
        }
        return _stretches_by(self.payers, days)


def load_parties_periods(tenants: Iterable[int]) -> PartiesPeriods:
    """Of these tenants, and of those that they ever pay for. One query."""
    calendars: dict[int, list[BillingPeriod]] = {pk: [] for pk in tenants}
    payers: list[Payer] = []
    with prepared_cursor() as cursor:
        cursor.execute(_PARTIES_PERIODS, {"tenants": list(calendars)})
        for period, row, user, payer in instances(cursor, BillingPeriod, Payer, Tenant, Tenant):
            if period.pk is not None:
                calendars.setdefault(period.tenant_id, []).append(period)
            else:
                row.tenant, row.payer = user, payer
                payers.append(row)
    for row in payers:
        calendars.setdefault(row.tenant_id, [])
    return PartiesPeriods(calendars, payers)


_PARTIES_PERIODS = """
WITH payer AS MATERIALIZED (
    SELECT * FROM billing_payer WHERE tenant_id = ANY (%(tenants)s::bigint[]) OR payer_id = ANY (%(tenants)s::bigint[])
)
SELECT p.*, y.*, u.*, t.* FROM (
    SELECT * FROM billing_billingperiod
    WHERE tenant_id = ANY (%(tenants)s::bigint[] || ARRAY(SELECT tenant_id FROM payer))
) p FULL JOIN (
    payer y JOIN tenants_tenant u ON u.id = y.tenant_id JOIN tenants_tenant t ON t.id = y.payer_id
) ON false
ORDER BY p.start, y.since, y.id
"""


def own_time(stretches: Iterable[Stretch]) -> list[tuple[datetime, datetime | None]]:
    """When a tenant paid for itself: all time but these stretches of its own, in order."""
    spans: list[tuple[datetime, datetime | None]] = []
    begins: datetime | None = datetime.min.replace(tzinfo=UTC)
    for stretch in sorted(stretches, key=lambda stretch: stretch.since):
        if begins is not None and begins < stretch.since:
            spans.append((begins, stretch.since))
        begins = stretch.until
    return [*spans, (begins, None)] if begins is not None else spans


def time_of(payer: int | None, stretches: Iterable[Stretch]) -> list[tuple[datetime, datetime | None]]:
    """When `payer` paid, of the stretches of one tenant; None: when it paid for itself."""
    if payer is None:
        return own_time(stretches)
    return [(stretch.since, stretch.until) for stretch in stretches if stretch.payer == payer]


def payers_in(period: BillingPeriod, stretches: Iterable[Stretch]) -> set[int]:
    """Who paid for its tenant at some second of the period."""
    return {
        stretch.payer
        for stretch in stretches
        if stretch.tenant == period.tenant_id and stretch.overlaps(period.start, period.end)
    }


def by_tenant(stretches: Iterable[Stretch]) -> Mapping[int, list[Stretch]]:
    """By whom is paid for."""
    groups: dict[int, list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        groups[stretch.tenant].append(stretch)
    return groups


def left(tenant: Tenant, *, on: date) -> Payer | None:
    """For whom the tenant pays on that day or will; it cannot leave before that ends."""
    rows = tenant.pays_for.filter(Q(until=None) | Q(until__gt=on)).select_related("tenant").order_by("since")
    return next((row for row in rows if row.until != row.since), None)


def _ended(row: Payer, on: date) -> Payer:
    if row.until != on:
        row.until = on
        row.save(update_fields=["until"])
    return row


def _refuse_archived(tenants: Iterable[Tenant]) -> None:
    for gone in Archive.objects.filter(tenant__in=list(tenants)).select_related("tenant"):
        raise PayerError("payer-archived", tenant=gone.tenant.slug)


def _refuse_chain(
    payer: Tenant, tenant: Tenant, since: date, until: date | None, *, but: Payer | None = None
) -> None:
    """Courtesy: the trigger `payer_has_no_payer_and_is_kept` is the law."""
    others = Payer.objects.filter(Q(tenant=payer) | Q(payer=tenant)).select_related("tenant", "payer")
    for row in others if but is None else others.exclude(pk=but.pk):
        holds = row.until is None or row.until > max(row.since, since)
        if holds and (until is None or row.since < until):
            raise PayerError(
                "payer-has-payer",
                payer=row.payer.slug,
                tenant=row.tenant.slug,
                since=row.since,
                other_payer=payer.slug,
                other_tenant=tenant.slug,
            )


def _stretches(rows: Sequence[Payer]) -> list[Stretch]:
    """By the clocks of the tenants' periods, as rating cuts what they used."""
    return _stretches_by(rows, billing_periods.days_of({row.tenant for row in rows}) if rows else {})


def _stretches_by(rows: Iterable[Payer], days: Mapping[int, Days]) -> list[Stretch]:
    return [
        Stretch(row.tenant_id, row.payer_id, since, None if until == NEVER else until)
        for row in rows
        for since, until in days[row.tenant_id].between(row.since, row.until)
    ]


def _currencies(tenant: Tenant, stretches: Iterable[Stretch]) -> set[str]:
    """In which the tenant's plans charge to invoices during the stretches."""
    plans = (
        Subscription.objects.filter(tenant=tenant)
        .exclude(plan__settles=Settles.WALLET)
        .select_related("plan")
    )
    return {
        subscription.plan.currency
        for subscription in plans
        for stretch in stretches
        if (stretch.until is None or subscription.since < stretch.until)
        and (subscription.until is None or subscription.until > stretch.since)
    }
