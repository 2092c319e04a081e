"""What all tenants spend and what their jobs cost, for monitoring: a fixed number of bounded queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Sum

from billing.models import PeriodTotal, Resource, Verdict
from billing.queries.accrued_charges import accrued_by_tenant, priced_by_totals
from billing.queries.costs import cost, per_currency, tags
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from portal.sql_files import Statements

sql = Statements(__file__, "spending.sql")

LATELY = timedelta(hours=24)
NAME = 120  # characters of a job's name that tell it from others


@dataclass(frozen=True, slots=True)
class Spend:
    """A tenant's slug, and its charges in one currency before tax, rounded as invoice lines are."""

    tenant: str
    amount: Money


class Kind(NamedTuple):
    """Jobs that are told as one."""

    name: str
    tenant: str  # slug
    gpu_type: str  # GPU model, `unknown` where the source does not say, `none` for jobs without a GPU
    account: str


@dataclass(frozen=True, slots=True)
class JobCosts:
    """Exact amounts, by kind those that cost most, and of all other kinds together; one per currency."""

    kinds: Mapping[Kind, list[Money]]
    rest: list[Money]


def spending(*, moment: datetime) -> list[Spend]:
    """What the billing periods that `moment` lies in have come to, by tenant and currency.

    Three queries, and those of a close for tenants whose plans have more than prices of single units.
    """
    by_totals = priced_by_totals(moment=moment)
    slugs = dict(
        Tenant.objects.filter(pk__in=[period.tenant_id for period in by_totals]).values_list("pk", "slug")
    )
    accrued = {slugs[tenant]: amounts for tenant, amounts in accrued_by_tenant(by_totals).items()}
    lines: dict[tuple[str, int, int], Fraction] = defaultdict(Fraction)
    for slug, project, price, share_den, units in _rows(sql.SPENDING, {"moment": moment}):
        lines[slug, project, price] += Fraction(int(units), share_den)
    prices = tags(price for _, _, price in lines)
    tenant_amounts: dict[str, list[Money]] = defaultdict(list)
    for (slug, _, price), seconds in lines.items():
        tenant_amounts[slug].append(cost(prices[price], seconds).rounded())
    sums = {slug: per_currency(amounts) for slug, amounts in tenant_amounts.items()} | accrued
    return [Spend(slug, amount) for slug in sorted(sums) for amount in sums[slug]]


def unpriced() -> list[tuple[str, Fraction]]:
    """Tenants with GPU-seconds that no price covers: slug, GPU-seconds. One query."""
    rows = (
        PeriodTotal.objects.filter(verdict=Verdict.UNPRICED, resource=Resource.GPU)
        .values_list("tenant__slug", "share_den")
        .annotate(sum=Sum("units"))
        .filter(sum__gt=0)
        .order_by("tenant__slug", "share_den")
    )
    gpu_seconds: dict[str, Fraction] = defaultdict(Fraction)
    for slug, share_den, units in rows:
        gpu_seconds[slug] += Fraction(int(units), share_den)
    return list(gpu_seconds.items())


def job_costs(*, moment: datetime, most: int) -> JobCosts:
    """What jobs that run, or ended within LATELY of `moment`, have cost in all, as far as they are rated.

    Told apart are, in each currency, the `most` kinds that cost most; all amounts add up to what these jobs were
    charged. A job that no pass has seen for as long counts as gone. Two queries.
    """
    since = int((moment - LATELY).timestamp())
    rows = _rows(sql.JOB_COSTS, {"moment": moment, "since": since, "most": most, "name_length": NAME})
    prices = tags(price for *_, price, _, _ in rows)
    kinds: dict[Kind, list[Money]] = defaultdict(list)
    rest: list[Money] = []
    for slug, name, account, gpu_type, price, share_den, units in rows:
        into = rest if slug is None else kinds[Kind(name, slug, gpu_type, account)]
        into.append(cost(prices[price], Fraction(int(units), share_den)))
    return JobCosts({kind: per_currency(kinds[kind]) for kind in sorted(kinds)}, per_currency(rest))


def _rows(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())
