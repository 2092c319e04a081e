"""A tenant's jobs, and one job with the pieces that its cost is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from django.db import connection
from django.db.models import Q, QuerySet

from billing.models import BillingPeriod, PeriodTotal, RatedJob, UserTotal, Verdict
from billing.queries.costs import Tag, Tags, cost, tags
from billing.rules.money import Money
from portal.core.tenants.asking import Ask, Rows
from portal.core.tenants.models import Project, Tenant

PAGE = 50
NEWEST = 300  # jobs that suggestions for a quote are taken from
MOST_USERS = 200  # suggestions
_NONE: Mapping[int, Any] = MappingProxyType({})
LOOK_BACK = 92 * 86_400  # seconds before a period in which a job that still ran in it may have started


@dataclass(frozen=True, slots=True)
class Job:
    """A job and what it costs so far: exact, None where no price was applied to it."""

    row: RatedJob
    project: str
    gpu_seconds: Fraction
    cost: Money | None
    verdict: Verdict
    by_total: bool = False  # `cost` is at the first unit's price; the total of the period decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs to list; an empty text asks for all."""

    period: BillingPeriod | None = None  # in which it started, or was submitted while it waits
    project: int | None = None
    gpu_model: str = ""
    state: str = ""  # in capitals or not: each scheduler has its own way
    user: str = ""
    q: str = ""  # beginning of the job id, or part of the name

    @property
    def anything(self) -> bool:
        return self != Wanted()


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last job of a page; the next one holds what stands behind it."""

    shown_at: int
    record_id: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rated usage of one job that has one window, project, resource and price, and one invoice or none.

    What was never invoiced and taken back again leaves no piece. `units` is negative where an
    invoiced piece is taken back.
    """

    project: str
    resource: str
    verdict: Verdict
    service_from: datetime
    service_to: datetime
    units: int  # resource units × seconds
    share: Fraction  # what one unit is of a GPU, core or GiB
    tag: Tag | None
    invoice: str  # number, "" where it is on none
    paid_by: str  # another tenant, on whose invoice it is or will be

    @property
    def resource_seconds(self) -> Fraction:
        return self.units * self.share

    @property
    def cost(self) -> Money | None:
        return cost(self.tag, self.resource_seconds) if self.tag else None


@dataclass(frozen=True, slots=True)
class Choices:
    """What the filters offer."""

    periods: list[BillingPeriod]  # newest first
    projects: list[tuple[int, str]]
    gpu_models: list[str]
    users: list[str]


def choices(tenant: Tenant) -> Choices:
    """Four queries over bounded totals."""
    models = PeriodTotal.objects.filter(tenant=tenant).exclude(gpu_model="")
    users = UserTotal.objects.filter(tenant=tenant).exclude(user="")
    return Choices(
        list(BillingPeriod.objects.filter(tenant=tenant).order_by("-start")),
        list(tenant.projects.order_by("name").values_list("pk", "name")),
        list(models.order_by("gpu_model").values_list("gpu_model", flat=True).distinct()),
        list(users.order_by("user").values_list("user", flat=True).distinct()[:MOST_USERS]),
    )


def newest(
    tenant: Tenant, filters: Wanted, *, after: Cursor | None = None
) -> tuple[list[Job], Cursor | None]:
    """A page of jobs, the newest first, and where the next one begins. Four queries."""
    rows = list(_matching(tenant, filters, after).order_by("-shown_at", "-record_id")[: PAGE + 1])
    more = Cursor(rows[PAGE - 1].shown_at, rows[PAGE - 1].record_id) if len(rows) > PAGE else None
    return costed(tenant, rows[:PAGE]), more


@dataclass(frozen=True, slots=True)
class Found:
    """Jobs that are not costed yet, and the names of their projects."""

    rows: list[RatedJob]
    projects: dict[int, str]


def ask_costliest(tenant: Tenant, period: BillingPeriod, *, limit: int) -> Ask[Found]:
    """The jobs that ran in the period and have cost most in all."""
    start, end = int(period.start.timestamp()), int(period.end.timestamp())
    values = {"tenant": tenant.pk, "start": start, "end": end, "before": start - LOOK_BACK, "limit": limit}

    def made(raw_rows: Rows) -> Found:
        rows = [RatedJob.from_db(connection.alias, _COLUMNS, row[:-1]) for row in raw_rows]
        return Found(rows, {job.project_id: row[-1] for job, row in zip(rows, raw_rows, strict=True)})

    return Ask(_COSTLIEST, values, made)


def ask_count(tenant: Tenant, period: BillingPeriod) -> Ask[int]:
    """How many jobs started in the period."""
    start, end = int(period.start.timestamp()), int(period.end.timestamp())
    return Ask(_COUNT, [tenant.pk, start, end], lambda rows: int(rows[0][0]), kept=True)


def job(tenant: Tenant, record_id: int) -> tuple[Job, list[Piece]]:
    """Raises RatedJob.DoesNotExist. Six queries."""
    row = RatedJob.objects.get(tenant=tenant, record_id=record_id)
    return costed(tenant, [row])[0], _pieces(tenant, row)


def _matching(tenant: Tenant, filters: Wanted, after: Cursor | None) -> QuerySet[RatedJob]:
    jobs = RatedJob.objects.filter(tenant=tenant)
    if filters.period is not None:
        start, end = int(filters.period.start.timestamp()), int(filters.period.end.timestamp())
        jobs = jobs.filter(shown_at__gte=start, shown_at__lt=end)
    if filters.project is not None:
        jobs = jobs.filter(project=filters.project)
    if filters.gpu_model:
        jobs = jobs.filter(gpu_model=filters.gpu_model)
    if filters.user:
        jobs = jobs.filter(user=filters.user)
    if filters.state:
        jobs = jobs.filter(state__in={filters.state, filters.state.upper(), filters.state.capitalize()})
    if filters.q:
        jobs = jobs.filter(Q(job_id__startswith=filters.q) | Q(name__icontains=filters.q))
    if after is not None:
        jobs = jobs.filter(
            Q(shown_at__lt=after.shown_at) | Q(shown_at=after.shown_at, record_id__lt=after.record_id),
            shown_at__lte=after.shown_at,
        )
    return jobs


@dataclass(frozen=True, slots=True)
class Shapes:
    """What the newest jobs were told to be, each value once, the newest first."""

    gpu_models: tuple[str, ...]
    mig_profiles: tuple[str, ...]
    queues: tuple[str, ...]
    qoses: tuple[str, ...]


def shapes(tenant: Tenant) -> Shapes:
    """One query, over at most NEWEST jobs."""
    newest = RatedJob.objects.filter(tenant=tenant).order_by("-shown_at", "-record_id")
    rows = list(newest.values_list("gpu_model", "mig_profile", "queue", "qos")[:NEWEST])
    return Shapes(*(tuple(dict.fromkeys(row[place] for row in rows if row[place])) for place in range(4)))


def costed(
    tenant: Tenant, rows: Sequence[RatedJob], *, prices: Tags = _NONE, projects: Mapping[int, str] = _NONE
) -> list[Job]:
    """Each job with the sum of its rated usage. Three queries, less those for prices and projects that are given."""
    if not rows:
        return []
    return summed(tenant, rows, ask_sums(tenant, rows).asked(), prices=prices, projects=projects)


Sums = Mapping[int, list[tuple[str, int | None, Fraction]]]
"""By job: verdict, price and resource-seconds."""


def ask_sums(tenant: Tenant, rows: Sequence[RatedJob]) -> Ask[Sums]:
    """The rated usage of each of these jobs."""

    def made(raw_rows: Rows) -> Sums:
        sums: dict[int, list[tuple[str, int | None, Fraction]]] = defaultdict(list)
        for record_id, verdict, price_id, share_den, units in raw_rows:
            sums[record_id].append((verdict, price_id, Fraction(int(units), share_den)))
        return sums

    return Ask(_SUMS, {"tenant": tenant.pk, **_span(rows)}, made, kept=True)


def summed(
    tenant: Tenant,
    rows: Sequence[RatedJob],
    sums: Sums,
    *,
    prices: Tags = _NONE,
    projects: Mapping[int, str] = _NONE,
) -> list[Job]:
    """Each job with what `ask_sums` was answered. Two queries at most, for prices and projects that are not given."""
    prices = tags((price for parts in sums.values() for _, price, _ in parts), prices=prices)
    project_ids = {row.project_id for row in rows}
    if not project_ids <= projects.keys():
        project_rows = Project.objects.filter(tenant=tenant, pk__in=project_ids)
        projects = dict(project_rows.values_list("pk", "name"))
    jobs = []
    for row in rows:
        parts = sums.get(row.record_id, [])
        amounts = [cost(prices[price], seconds) for _, price, seconds in parts if price and price in prices]
        jobs.append(
            Job(
                row,
                projects[row.project_id],
                Fraction(row.gpu_units * row.share_num, row.share_den),
                sum(amounts[1:], amounts[0]) if len({a.currency for a in amounts}) == 1 else None,
                _verdict(row, {verdict for verdict, _, _ in parts}),
                any(prices[price].by_total for _, price, _ in parts if price and price in prices),
            )
        )
    return jobs


def _verdict(row: RatedJob, verdicts: set[str]) -> Verdict:
    """The loudest: a job with an unpriced part is unpriced, one of which nothing is charged is waived."""
    if row.unpriced:
        return Verdict.UNPRICED
    return Verdict.WAIVED if verdicts == {Verdict.WAIVED} else Verdict.CHARGED


def _pieces(tenant: Tenant, row: RatedJob) -> list[Piece]:
    with connection.cursor() as cursor:
        cursor.execute(_PIECES, {"tenant": tenant.pk, "record": row.record_id})
        rows = cursor.fetchall()
    prices = tags(price for *_, price, _, _ in rows)
    return [
        Piece(
            project,
            resource,
            Verdict(verdict),
            datetime.fromtimestamp(since, UTC),
            datetime.fromtimestamp(until, UTC),
            int(units),
            Fraction(share_num, share_den),
            prices.get(price),
            number or "",
            payer or "",
        )
        for project, resource, verdict, since, until, units, share_num, share_den, price, number, payer in rows
    ]


def _span(rows: Sequence[RatedJob]) -> dict[str, Any]:
    """The jobs, and the months that their present revisions touch: what lies beyond nets to nothing."""
    spans = [
        (row.started, row.ended or row.seen_until or row.started) for row in rows if row.started is not None
    ]
    return {
        "records": [row.record_id for row in rows],
        "since": _month(min((since for since, _ in spans), default=0)),
        "until": _month(max((until for _, until in spans), default=0)),
    }


def _month(second: int) -> date:
    return datetime.fromtimestamp(second, UTC).date().replace(day=1)


_COLUMNS = [field.attname for field in RatedJob._meta.concrete_fields]
_ROW = ", ".join(f'j."{column}"' for column in _COLUMNS)

# The first are found from the index alone: whole rows take long to sort.
_COSTLIEST = f"""
SELECT {_ROW}, p.name
FROM (
    SELECT record_id FROM billing_ratedjob
    WHERE tenant_id = %(tenant)s AND shown_at >= %(before)s AND shown_at < %(end)s
      AND (ended > %(start)s OR ended IS NULL)
    ORDER BY cost_rank DESC, gpu_units DESC, record_id DESC LIMIT %(limit)s
) first
JOIN billing_ratedjob j ON j.tenant_id = %(tenant)s AND j.record_id = first.record_id
JOIN tenants_project p ON p.id = j.project_id
ORDER BY j.cost_rank DESC, j.gpu_units DESC, j.record_id DESC
"""  # noqa: S608 - built from constants

_COUNT = "SELECT count(*) FROM billing_ratedjob WHERE tenant_id = %s AND shown_at >= %s AND shown_at < %s"

_SUMS = """
SELECT record_id, verdict, price_id, share_den, sum(units::numeric * share_num)
FROM billing_ratedusage
WHERE tenant_id = %(tenant)s AND record_id = ANY(%(records)s)
  AND service_month >= %(since)s AND service_month <= %(until)s
GROUP BY record_id, verdict, price_id, share_den
HAVING sum(units::numeric * share_num) <> 0
"""

# An invoice covers what was rated up to `rated_through`, in its own period and those before it.
_PIECES = """
SELECT c.name, r.resource, r.verdict, r.service_from, r.service_to, sum(r.units), r.share_num, r.share_den,
       r.price_id, i.number, y.payer
FROM billing_ratedusage r
JOIN tenants_project c ON c.id = r.project_id
JOIN billing_billingperiod p ON p.id = r.period_id
LEFT JOIN LATERAL (
    SELECT v.number FROM billing_invoice v
    WHERE v.tenant_id = r.tenant_id AND r.payer_id IS NULL AND v.state = 'issued' AND r.verdict = 'charged'
      AND v.period_end >= p."end" AND v.rated_through >= r.id
    ORDER BY v.rated_through, v.id LIMIT 1
) i ON true
LEFT JOIN (SELECT DISTINCT tenant_id, payer_id, payer FROM billing_paying) y
  ON y.tenant_id = r.tenant_id AND y.payer_id = r.payer_id
WHERE r.tenant_id = %(tenant)s AND r.record_id = %(record)s
GROUP BY c.name, r.resource, r.verdict, r.service_from, r.service_to, r.share_num, r.share_den, r.price_id, i.number,
         y.payer
HAVING sum(r.units) <> 0
ORDER BY r.service_from, array_position(ARRAY['gpu', 'cpu', 'memory', 'gpu-memory'], r.resource), i.number NULLS LAST,
         sum(r.units) > 0, r.service_to
"""
