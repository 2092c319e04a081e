"""A tenant's billing period, from the totals that rating keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection

from billing.models import BillingPeriod, Resource, Verdict
from billing.reading.costs import Tags, cost, per_currency, tags
from billing.rules.money import Money, split
from portal.tenants.models import Tenant

SERIES = 7  # projects that a chart tells apart; the others are one


class Row(NamedTuple):
    """A total of a period."""

    period: int
    project: int
    name: str  # the project's
    gpu_model: str
    resource: str
    verdict: str
    price: int | None
    share_den: int
    units: Decimal


Key = tuple[int, str, str, Verdict]  # project, its name, GPU model, what became of the use


@dataclass(frozen=True, slots=True)
class Use:
    """What a project used of one GPU model, with one verdict; `cost` is empty unless it is charged."""

    project: str
    gpu_model: str  # "" for jobs without a GPU, or where the source does not say
    verdict: Verdict
    gpu_seconds: Fraction
    cost: list[Money]  # rounded as invoice lines are


@dataclass(frozen=True, slots=True)
class Day:
    """What all projects of one series used on a day; `project` is None for those without one of their own."""

    day: date
    project: int | None
    gpu_seconds: Fraction
    amount: Fraction  # in the period's currency


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The first days of a period, as many as of the period that it is compared with."""

    gpu_seconds: Fraction
    amount: Fraction


@dataclass(frozen=True, slots=True)
class Overview:
    """`currency` is "" where nothing is charged or, by mistake, in several currencies."""

    period: BillingPeriod
    first: date  # its days [first, end) in its own zone
    end: date
    currency: str
    spend: list[Money]
    gpu_seconds: Fraction
    uses: list[Use]  # by cost, then by GPU time, the largest first
    series: list[tuple[int, str]]  # projects by the same order
    days: list[Day]
    before: Elapsed | None  # the same days of the period before, unless charged in another currency
    before_period: BillingPeriod | None
    prices: Tags  # of both periods


def periods(tenant: Tenant, *, moment: datetime) -> list[BillingPeriod]:
    """The billing periods that have begun, oldest first."""
    return list(BillingPeriod.objects.raw(_PERIODS, [tenant.pk, moment]))


def overview(tenant: Tenant, period: BillingPeriod, before: BillingPeriod | None, *, today: date) -> Overview:
    """Five queries. `today` is a day of the period's zone: later ones are not compared with."""
    rows = _totals(tenant, [p for p in (period, before) if p])
    prices = tags(row.price for row in rows)
    own = [row for row in rows if row.period == period.pk]
    found = _currencies(own, prices)
    currency = found.pop() if len(found) == 1 else ""
    uses, series = _uses(own, prices)
    first, end = days_of(period)
    days = _days(tenant, first, end, [pk for pk, _ in series])
    elapsed = min(end, today + timedelta(days=1)) - first
    earlier = None
    if before is not None and _currencies([r for r in rows if r.period == before.pk], prices) <= {currency}:
        begun = days_of(before)[0]
        earlier = _elapsed(tenant, begun, min(begun + elapsed, first) if today < end else first)
    return Overview(
        period,
        first,
        end,
        currency,
        per_currency(amount for use in uses for amount in use.cost),
        sum((use.gpu_seconds for use in uses), Fraction(0)),
        uses,
        series,
        days,
        earlier,
        before,
        prices,
    )


def days_of(period: BillingPeriod) -> tuple[date, date]:
    """Its days [first, end) in its own zone."""
    zone = ZoneInfo(period.timezone)
    return period.start.astimezone(zone).date(), period.end.astimezone(zone).date()


def _totals(tenant: Tenant, periods: list[BillingPeriod]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(_TOTALS, [tenant.pk, [period.pk for period in periods]])
        return [Row(*row) for row in cursor.fetchall()]


def _currencies(rows: Sequence[Row], prices: Tags) -> set[str]:
    return {prices[row.price].currency for row in rows if row.price is not None and row.price in prices}


def _uses(rows: Sequence[Row], prices: Tags) -> tuple[list[Use], list[tuple[int, str]]]:
    hours: dict[Key, Fraction] = defaultdict(Fraction)
    lines: dict[tuple[int, int], dict[Key, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for row in rows:
        key = (row.project, row.name, row.gpu_model, Verdict(row.verdict))
        seconds = Fraction(int(row.units), row.share_den)
        if row.resource == Resource.GPU:
            hours[key] += seconds
        elif key[-1] != Verdict.CHARGED:
            hours[key] += 0  # it shows, without a GPU-hour
        if row.price is not None and row.price in prices:
            lines[row.project, row.price][key] += seconds
    costs = _costs(lines, prices)
    seen = hours.keys() | costs.keys()
    shown = {(key[0], key[2]) for key in seen if key[-1] != Verdict.WAIVED}
    uses = {
        key: Use(key[1], key[2], key[-1], hours[key], per_currency(costs[key]))
        for key in seen
        # CPU and memory beside a charged GPU are waived without a word; a waived GPU is told.
        if key[-1] != Verdict.WAIVED or hours[key] or (key[0], key[2]) not in shown
    }
    ordered = sorted(uses, key=lambda key: (*_weight([uses[key]]), key[1], key[2]))
    by_project: dict[tuple[int, str], list[Use]] = defaultdict(list)
    for key in ordered:
        by_project[key[0], key[1]].append(uses[key])
    largest = sorted(by_project, key=lambda project: (*_weight(by_project[project]), project[1]))
    return [uses[key] for key in ordered], largest[:SERIES]


def _costs(lines: Mapping[tuple[int, int], Mapping[Key, Fraction]], prices: Tags) -> dict[Key, list[Money]]:
    """Rounded once per project and price, as the invoice's lines are, so that a page adds up to the invoice.

    Where one price covers several GPU models, its rounded amount is shared by their use.
    """
    costs: dict[Key, list[Money]] = defaultdict(list)
    for (_, price), used in lines.items():
        line = cost(prices[price], sum(used.values(), Fraction(0))).rounded()
        unit = lcm(*(seconds.denominator for seconds in used.values()))
        shares = split(line, [int(seconds * unit) for seconds in used.values()])
        for key, share in zip(used, shares, strict=True):
            costs[key].append(share)
    return costs


def _weight(uses: Iterable[Use]) -> tuple[Fraction, Fraction]:
    """Sorts the costly first, then the busy."""
    uses = list(uses)
    return (
        -sum((money.amount for use in uses for money in use.cost), Fraction(0)),
        -sum((use.gpu_seconds for use in uses), Fraction(0)),
    )


def _days(tenant: Tenant, first: date, end: date, projects: list[int]) -> list[Day]:
    with connection.cursor() as cursor:
        cursor.execute(_DAYS, {"tenant": tenant.pk, "first": first, "end": end, "projects": projects})
        rows = cursor.fetchall()
    sums: dict[tuple[date, int | None], list[Fraction]] = defaultdict(lambda: [Fraction(0), Fraction(0)])
    for day, series, share_den, gpu, amount in rows:
        entry = sums[day, series]
        entry[0] += Fraction(int(gpu or 0), share_den)
        entry[1] += _amount(amount, share_den)
    return [Day(day, project, gpu, amount) for (day, project), (gpu, amount) in sums.items()]


def _elapsed(tenant: Tenant, first: date, end: date) -> Elapsed:
    with connection.cursor() as cursor:
        cursor.execute(_ELAPSED, {"tenant": tenant.pk, "first": first, "end": end})
        rows = cursor.fetchall()
    return Elapsed(
        sum((Fraction(int(gpu or 0), share_den) for share_den, gpu, _ in rows), Fraction(0)),
        sum((_amount(amount, share_den) for share_den, _, amount in rows), Fraction(0)),
    )


_PERIODS = "SELECT * FROM billing_billingperiod WHERE tenant_id = %s AND start <= %s ORDER BY start"

_TOTALS = """
SELECT t.period_id, t.project_id, p.name, t.gpu_model, t.resource, t.verdict, t.price_id, t.share_den, t.units
FROM billing_periodtotal t JOIN tenants_project p ON p.id = t.project_id
WHERE t.tenant_id = %s AND t.period_id = ANY (%s) AND t.units <> 0
"""

_DAYS = """
SELECT day, CASE WHEN project_id = ANY (%(projects)s::bigint[]) THEN project_id END AS series, share_den,
       sum(units) FILTER (WHERE resource = 'gpu'), sum(amount)
FROM billing_daytotal WHERE tenant_id = %(tenant)s AND day >= %(first)s AND day < %(end)s
GROUP BY day, series, share_den ORDER BY day, series, share_den
"""

_ELAPSED = """
SELECT share_den, sum(units) FILTER (WHERE resource = 'gpu'), sum(amount)
FROM billing_daytotal WHERE tenant_id = %(tenant)s AND day >= %(first)s AND day < %(end)s GROUP BY share_den
"""


def _amount(kept: Any, share_den: int) -> Fraction:
    """Totals keep Σ units × share_num × unit price, undivided."""
    numerator, denominator = (kept or Decimal(0)).as_integer_ratio()
    return Fraction(numerator, denominator * share_den * 3600)


def local_day(moment: datetime, period: BillingPeriod) -> date:
    """The day that `moment` falls on, in the period's zone."""
    return moment.astimezone(UTC).astimezone(ZoneInfo(period.timezone)).date()
