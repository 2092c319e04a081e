"""Plans for the operator: what holds when, by what usage was rated, and whose last month a draft is shown on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import zip_longest
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import Q, QuerySet, Sum

from billing.catalog.version_terms import SETTERS, Term
from billing.models import (
    BillingPeriod,
    Commitment,
    Discount,
    Fee,
    InvoiceLine,
    LineKind,
    PeriodTotal,
    Plan,
    PlanQuota,
    PlanVersion,
    Price,
    Resource,
    Subscription,
)
from billing.rules.period import shifted
from portal.core.tenants.models import Tenant

KINDS = {LineKind.FEE: Fee, LineKind.COMMITMENT: Commitment, LineKind.DISCOUNT: Discount}


@dataclass(slots=True)
class Version:
    """One version, and the first day of the one behind it. `used`: something was rated or billed by it."""

    row: PlanVersion
    until: date | None
    used: bool
    prices: list[Price] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    quotas: list[PlanQuota] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class VersionedPlan:
    """A plan with its versions, the oldest first, and how many tenants are on it now or were ever."""

    row: Plan
    versions: list[Version]
    now: int
    ever: int
    used_prices: set[int]  # by which usage was rated


def plans(*, moment: datetime, name: str = "") -> list[VersionedPlan]:
    """All plans by name, or the one asked for. Ten queries at most."""
    rows = list(Plan.objects.filter(**({"name": name} if name else {})).order_by("name"))
    versions = PlanVersion.objects.filter(plan__in=rows).select_related("plan").order_by("effective_from")
    by_plan: dict[int, list[PlanVersion]] = defaultdict(list)
    for version in versions:
        by_plan[version.plan_id].append(version)
    used, prices = _used([version.pk for listed in by_plan.values() for version in listed])
    versioned_plans = [
        VersionedPlan(row, _versions(by_plan[row.pk], used), *_tenants(row, counts), prices)
        for counts in [_subscribed(rows, moment)]
        for row in rows
    ]
    if name:
        _fill([version for plan in versioned_plans for version in plan.versions])
    return versioned_plans


def subscribers(plan: Plan, *, moment: datetime, limit: int) -> list[tuple[str, datetime]]:
    """Slugs of whoever is on the plan now, with since when."""
    rows = Subscription.objects.filter(Q(until=None) | Q(until__gt=moment), plan=plan)
    return list(rows.order_by("tenant__slug").values_list("tenant__slug", "since")[:limit])


def last_month(*, moment: datetime) -> tuple[int, int] | None:
    """The newest month that is over and in which anything was used; None where there is none. One query."""
    period = BillingPeriod.objects.filter(end__lte=moment, totals__units__gt=0).order_by("-start").first()
    if period is None:
        return None
    local = period.start.astimezone(ZoneInfo(period.timezone))
    return local.year, local.month


def examples(*, plan: str, month: tuple[int, int]) -> list[tuple[str, Tenant]]:
    """A small, a usual and a large tenant by what they used in the month: of the plan's, or of all. Two queries."""
    start, end = (datetime(year, number, 1, tzinfo=UTC) for year, number in (month, shifted(month, 1)))
    sums = PeriodTotal.objects.filter(
        period__start__gte=start - timedelta(days=1),  # in a zone east of it the month begins before
        period__start__lt=end - timedelta(days=1),
        resource=Resource.GPU,
    )
    on = Subscription.objects.filter(plan__name=plan).values("tenant")
    chosen = sums.filter(tenant__in=on)
    totals = list(_ordered(chosen)) or list(_ordered(sums))
    if not totals:
        return []
    places = {"Small": 0, "Usual": len(totals) // 2, "Large": len(totals) - 1}
    tenant_ids = {name: totals[place] for name, place in places.items()}
    tenants = Tenant.objects.in_bulk(set(tenant_ids.values()))
    labels: dict[int, str] = {}
    for name in ("Usual", "Small", "Large"):  # of fewer than three the usual one is told first
        labels.setdefault(tenant_ids[name], name)
    return [(labels[pk], tenants[pk]) for pk in sorted(labels, key=lambda pk: list(places).index(labels[pk]))]


def _ordered(sums: QuerySet[PeriodTotal]) -> list[int]:
    rows = sums.values("tenant").annotate(sum=Sum("units")).filter(sum__gt=0)
    return [row["tenant"] for row in rows.order_by("sum", "tenant")]


def _versions(rows: Sequence[PlanVersion], used: set[int]) -> list[Version]:
    return [
        Version(row, following.effective_from if following else None, row.pk in used)
        for row, following in zip_longest(rows, rows[1:])
    ]


def _used(ids: Sequence[int]) -> tuple[set[int], set[int]]:
    """Versions, and prices, by which usage was charged or a term billed. Four queries.

    By whom usage was waived alone is not told here, where it takes reading all that was ever rated.
    """
    with connection.cursor() as cursor:
        cursor.execute(_USED, [list(ids)])
        rows = cursor.fetchall()
    versions = {version for version, _ in rows}
    for kind, model in KINDS.items():
        lines = InvoiceLine.objects.filter(kind=kind).values("term_id")
        terms = model._default_manager.filter(version__in=ids, pk__in=lines)
        versions |= set(terms.values_list("version", flat=True))
    return versions, {price for _, price in rows}


def _subscribed(plans: Sequence[Plan], moment: datetime) -> Mapping[int, tuple[set[int], set[int]]]:
    counts: dict[int, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for row in Subscription.objects.filter(plan__in=plans):
        now, ever = counts[row.plan_id]
        ever.add(row.tenant_id)
        if row.until is None or row.until > moment:
            now.add(row.tenant_id)
    return counts


def _tenants(plan: Plan, counts: Mapping[int, tuple[set[int], set[int]]]) -> tuple[int, int]:
    now, ever = counts.get(plan.pk, (set(), set()))
    return len(now), len(ever)


def filled(row: PlanVersion) -> Version:
    """The version with its prices, terms and quotas, told neither until when nor whether it is used. Six queries."""
    version = Version(row, None, used=False)
    _fill([version])
    return version


def filled_all(rows: Sequence[PlanVersion]) -> list[Version]:
    """As `filled`, of several at once. Six queries, however many they are."""
    versions = [Version(row, None, used=False) for row in rows]
    _fill(versions)
    return versions


def _fill(versions: Sequence[Version]) -> None:
    own = {version.row.pk: version for version in versions}
    prices = Price.objects.filter(version__in=own).select_related("version__plan", "tenant", "allowance")
    for price in prices.order_by("position", "pk"):
        own[price.version_id].prices.append(price)
    for model in SETTERS:
        rows = model._default_manager.filter(version__in=own).select_related("tenant")
        for row in rows.order_by("pk"):
            own[row.version_id].terms.append(row)
    for quota in PlanQuota.objects.filter(version__in=own).order_by("pk"):
        own[quota.version_id].quotas.append(quota)


_USED = """
SELECT p.version_id, p.id FROM billing_price p WHERE p.version_id = ANY (%s) AND p.id IN (
    SELECT DISTINCT t.price_id FROM billing_periodtotal t WHERE t.price_id IS NOT NULL)
"""
