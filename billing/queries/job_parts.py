"""Jobs of several parts: the pods of a training or a service, which the scheduler records one by one.

A part names its job in `RatedJob.part_of`; parts of one job have one project and one cluster, too. In a list the newest
of those parts that are listed stands for all of them. What has no job above it is a job of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from django.contrib.postgres.aggregates import ArrayAgg, BoolOr
from django.db import connection
from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from billing.models import BillingPeriod, RatedJob
from billing.queries.costs import Tag, tag
from billing.queries.jobs import NEWEST_FIRST, Job, JobFilter, Parts, costed, month_of, seconds_of, summed
from billing.queries.jobs import sql as jobs_sql
from portal.core.tenants.models import Project, Tenant
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "job_parts.sql")

SHOWN = 50  # parts on the page of a job


class JobKey(NamedTuple):
    """What the parts of one job of a tenant have in common."""

    project: int
    cluster: str
    name: str

    @classmethod
    def of(cls, row: RatedJob) -> JobKey:
        return cls(row.project_id, row.cluster, row.part_of)


@dataclass(slots=True)
class _Sum:
    """Of the parts of one job, gathered."""

    records: list[int]
    gpu_seconds: Fraction
    submitted: int | None
    started: int | None
    finish: int | None
    running: int
    unpriced: bool


def folds(tenant: Tenant, filters: JobFilter) -> bool:
    """Whether a list may have parts to fold: not where those of one job are listed, nor of a tenant without any.

    One query: to look for parts of each job takes long where there are tables of many months.
    """
    if filters.part_of:
        return False
    with prepared_cursor() as cursor:
        cursor.execute(sql.HAS_PARTS, {"tenant": tenant.pk})
        return bool(cursor.fetchone()[0])


def heads(rows: QuerySet[Any], listed: QuerySet[RatedJob]) -> QuerySet[Any]:
    """Of `rows` one for each job: its newest part of those `listed`."""
    parts = _parts_of_outer(listed)
    # Apart: so the index leads to a later one at once, where both in one would read all parts for each of them.
    later = parts.filter(shown_at__gt=OuterRef("shown_at"))
    of_one_second = parts.filter(shown_at=OuterRef("shown_at"), record_id__gt=OuterRef("record_id"))
    return rows.filter(Q(part_of="") | (~Exists(later) & ~Exists(of_one_second)))


def summed_over_parts(rank: Any, listed: QuerySet[RatedJob]) -> Any:
    """An expression of a job's own columns, of a head the sum over its parts."""
    sums = _parts_of_outer(listed).order_by().values("part_of").annotate(sum=Sum(rank)).values("sum")
    return Coalesce(Subquery(sums), rank)


def _parts_of_outer(listed: QuerySet[RatedJob]) -> QuerySet[RatedJob]:
    return listed.exclude(part_of="").filter(
        project=OuterRef("project"), cluster=OuterRef("cluster"), part_of=OuterRef("part_of")
    )


def folded(
    tenant: Tenant,
    rows: Sequence[RatedJob],
    listed: QuerySet[RatedJob],
    filters: JobFilter | None = None,
    *,
    read: Sequence[Job] = (),
) -> list[Job]:
    """Each row with what it costs; a head of several parts with what those `listed` cost together.

    One query, none where all of them are among those `read`; and two more where there are such heads.
    """
    by_record = {job.row.record_id: job for job in read}
    if by_record.keys() >= {row.record_id for row in rows}:
        jobs = [by_record[row.record_id] for row in rows]
    else:
        jobs = costed(tenant, rows)
    return jobs if filters and filters.part_of else _fold(tenant, jobs, listed)


def _fold(tenant: Tenant, jobs: list[Job], listed: QuerySet[RatedJob]) -> list[Job]:
    keys = {JobKey.of(job.row): job.row.record_id for job in jobs if job.row.part_of}
    sums = _sums(listed, keys)
    several = {key: sums[key] for key in keys if key in sums and len(sums[key].records) > 1}
    if not several:
        return jobs
    costs = _costs(tenant, {keys[key]: one for key, one in several.items()})
    return [
        _whole(job, several[key], costs[job.row.record_id]) if (key := JobKey.of(job.row)) in several else job
        for job in jobs
    ]


def whole(tenant: Tenant, part: Job) -> tuple[Job, list[Job]] | None:
    """The job of which this is a part, and its newest parts; None where it has no other parts.

    Four queries.
    """
    if not part.row.part_of:
        return None
    parts = parts_of(tenant, JobKey.of(part.row))
    [job] = _fold(tenant, [part], parts)
    if job.parts is None:
        return None
    newest = parts.select_related("project").order_by(*NEWEST_FIRST)[:SHOWN]
    return job, costed(tenant, list(newest))


def top_jobs(tenant: Tenant, period: BillingPeriod, *, limit: int) -> list[Job]:
    """The jobs that ran in the period and have cost most in all. Two queries; five where some have parts.

    What rating keeps of a period are single runs, so that all jobs of a tenant with parts are looked through.
    """
    values: dict[str, Any] = {"tenant": tenant.pk, "period": period.pk, "most": limit}
    rows, flags = [], set()
    with prepared_cursor() as cursor:
        cursor.execute(jobs_sql.TOP_JOBS, values)
        for row, row.project, has_parts in instances(cursor, RatedJob, Project):
            rows.append(row)
            flags.add(has_parts)
    if flags != {True}:
        return costed(tenant, rows)
    since, until = seconds_of(period)
    with connection.cursor() as cursor:
        cursor.execute(sql.TOP, {"tenant": tenant.pk, "since": since, "until": until, "most": limit})
        records = [record for (record,) in cursor.fetchall()]
    every = RatedJob.objects.runs().filter(tenant=tenant)
    by_record = {row.record_id: row for row in every.select_related("project").filter(record_id__in=records)}
    going_on = Q(ended__gt=since) | Q(ended=None, seen_until__gt=since) | Q(started__gte=since)
    ran = every.filter(going_on, started__lt=until)
    return folded(tenant, [by_record[record] for record in records if record in by_record], ran)


def parts_of(tenant: Tenant, key: JobKey) -> QuerySet[RatedJob]:
    return RatedJob.objects.runs().filter(
        tenant=tenant, project=key.project, cluster=key.cluster, part_of=key.name
    )


def _sums(listed: QuerySet[RatedJob], keys: Mapping[JobKey, int]) -> dict[JobKey, _Sum]:
    """Of the parts of these jobs. One query, which may tell of others too."""
    if not keys:
        return {}
    names = {
        f"{name}__in": {getattr(key, field) for key in keys}
        for name, field in (("project", "project"), ("cluster", "cluster"), ("part_of", "name"))
    }
    rows = (
        listed.exclude(part_of="")
        .filter(**names)
        .order_by()
        .values_list("project_id", "cluster", "part_of", "share_num", "share_den")
        .annotate(
            records=ArrayAgg("record_id"),
            units=Sum("gpu_units"),
            first_submitted=Min("submitted"),
            began=Min("started"),
            finish=Max(Coalesce("ended", "seen_until", "started")),
            running=Count("record_id", filter=Q(started__isnull=False, ended=None)),
            missing=BoolOr("unpriced"),
        )
    )
    sums: dict[JobKey, _Sum] = {}
    for project, cluster, name, num, den, records, units, submitted, began, finish, running, missing in rows:
        one = sums.setdefault(
            JobKey(project, cluster, name), _Sum([], Fraction(0), None, None, None, 0, False)
        )
        one.records += records
        one.gpu_seconds += Fraction(int(units) * num, den)
        one.submitted = min(filter(None, (one.submitted, submitted)), default=None)
        one.started = min(filter(None, (one.started, began)), default=None)
        one.finish = max(filter(None, (one.finish, finish)), default=None)
        one.running += running
        one.unpriced |= missing
    return sums


Costs = Sequence[tuple[str, Tag | None, Fraction]]


def _costs(tenant: Tenant, sums: Mapping[int, _Sum]) -> Mapping[int, Costs]:
    """By the record of the head: verdict, price and resource-seconds of all parts together. One query."""
    costs: dict[int, list[tuple[str, Tag | None, Fraction]]] = {head: [] for head in sums}
    pairs = [(record, head) for head, one in sums.items() for record in one.records]
    begins = [one.started for one in sums.values() if one.started is not None]
    ends = [one.finish for one in sums.values() if one.finish is not None]
    values: dict[str, Any] = {
        "tenant": tenant.pk,
        "records": [record for record, _ in pairs],
        "heads": [head for _, head in pairs],
        "first_month": month_of(min(begins, default=0)),
        "last_month": month_of(max(ends, default=0)),
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.COSTS, values)
        for head, verdict, share_den, units, *price in cursor.fetchall():
            costs[head].append(
                (verdict, tag(*price) if price[0] is not None else None, Fraction(int(units), share_den))
            )
    return costs


def _whole(job: Job, one: _Sum, costs: Costs) -> Job:
    parts = Parts(len(one.records), one.running, one.submitted, one.started, one.finish)
    return replace(summed(job.row, one.gpu_seconds, costs, unpriced=one.unpriced), parts=parts)
