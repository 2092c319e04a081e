"""A tenant's jobs that run or wait, and what they accrue by the terms of their last rated second."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from typing import Any

from django.db.models import QuerySet

from billing.models import DayTotal, PeriodTotal, RatedJob, Resource, Verdict
from billing.queries.costs import Tag, Tags, cost, per_currency, tags
from billing.queries.jobs import NEWEST_FIRST, PAGE, Job, costed
from billing.rules.money import Money
from clusters import requested_resources
from clusters.requested_resources import RequestedResources
from clusters.usage import Mark
from portal.core import pagination
from portal.core.tenants.models import Project, Tenant
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "live.sql")

UNSEEN = 5400  # seconds behind its cluster's watermark from which a run counts as no longer seen: passes over a live
# source move what runs on once an hour
RECENT = 2000  # of the newest jobs, in which one like a waiting job is looked for
HOUR = 3600

Cut = tuple[str, str, int | None]  # resource, verdict, price


@dataclass(frozen=True, slots=True)
class Part:
    """One resource that a job holds. `quantity` is in what the meter counts: GPUs, cores, GiB."""

    resource: Resource
    verdict: Verdict
    quantity: Fraction
    tag: Tag | None


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job that runs or waits. `parts` is empty where nothing accrues or its price cannot be told."""

    job: Job
    parts: tuple[Part, ...]
    holds: RequestedResources  # what it holds, or was asked for while it waits
    requested: str  # as the scheduler prints it
    time_limit: int | None  # seconds
    unseen: bool = False  # open, as far as is known, but its cluster's last pass did not see it
    until: int | None = None  # the second up to which it is taken to have run, or waited, on

    @property
    def since(self) -> int | None:
        """The second in which it started, or was submitted while it waits."""
        row = self.job.row
        return row.started if row.started is not None else row.submitted

    @property
    def lasted(self) -> int | None:
        """Seconds that it ran or waited."""
        return None if self.since is None or self.until is None else max(0, self.until - self.since)

    @property
    def limit_at(self) -> int | None:
        """The second in which its time limit is reached."""
        started = self.job.row.started
        return started + self.time_limit if started is not None and self.time_limit else None

    @property
    def per_hour(self) -> Money | None:
        """What an hour of it costs, exact; None where that is not told by prices alone."""
        return _per_hour(self.parts) if self.verdict == Verdict.CHARGED else None

    @property
    def verdict(self) -> Verdict | None:
        """The loudest of its parts; None without any."""
        verdicts = {part.verdict for part in self.parts}
        loudest = (Verdict.UNPRICED, Verdict.CHARGED, Verdict.WAIVED)
        return next((verdict for verdict in loudest if verdict in verdicts), None)

    @property
    def so_far(self) -> Money | None:
        """What it has cost: as rated, and at its present rate for the time since."""
        seen = self.job.row.seen_until
        if self.per_hour is None or seen is None or self.until is None or self.until <= seen:
            return self.job.cost
        since = self.per_hour * Fraction(self.until - seen, HOUR)
        return since + self.job.cost if self.job.cost else since

    @property
    def at_limit(self) -> Money | None:
        """What it will have cost once its time limit is reached, at today's price; None without the one or other."""
        per_hour, row = self.per_hour, self.job.row
        if per_hour is None or self.time_limit is None or self.job.verdict == Verdict.UNPRICED:
            return None
        ran = (row.seen_until or row.started) - row.started if row.started is not None else 0
        coming = per_hour * Fraction(max(0, self.time_limit - ran), HOUR)
        return coming + self.job.cost if self.job.cost else coming


@dataclass(frozen=True, slots=True)
class RunningGpus:
    """GPUs of one model and slice that run now."""

    gpu_model: str
    mig_profile: str
    share: Fraction
    gpus: int


@dataclass(frozen=True, slots=True)
class Live:
    """What a tenant holds now, and what that costs."""

    running: int
    waiting: int
    unpriced: int  # of the running ones
    unseen: int  # beside those that run or wait
    running_gpus: list[RunningGpus]  # the most GPUs first
    per_hour: list[Money]  # of all that runs, per currency
    today: Money | None  # what all jobs of the day have cost; None in several currencies or none
    runs: list[OpenJob]  # newest first
    more_runs: str  # cursor, "" for none
    waits: list[OpenJob]  # longest waiting first
    more_waits: str
    is_first: bool  # both lists begin at their top
    by_totals: bool  # amounts are at first units' prices: totals of the period decide


def live(
    tenant: Tenant,
    marks: Sequence[Mark],
    *,
    moment: datetime,
    today: date,
    runs_after: str = "",
    waits_after: str = "",
) -> Live:
    """A page of what runs and one of what waits, with the totals of all. At most twelve queries."""
    since, gone = seen_since(marks), _gone(tenant)
    values = {
        "tenant": tenant.pk,
        "clusters": list(since),
        "since": list(since.values()),
        "gone": list(gone),
    }
    ((waiting, running, unpriced, unseen),) = _rows(sql.COUNTS, values)
    groups = _rows(sql.NOW, values)
    is_open = RatedJob.objects.filter(tenant=tenant, ended__isnull=True).select_related("project")
    running_page = pagination.page(
        is_open.filter(started__isnull=False), *NEWEST_FIRST, after=runs_after, size=PAGE, fetch=_fetch
    )
    waiting_page = pagination.page(
        is_open.filter(started__isnull=True),
        *("shown_at", "record_id"),
        after=waits_after,
        size=PAGE,
        fetch=_fetch,
    )
    runs, waits = running_page.rows, waiting_page.rows
    jobs = costed(tenant, [*runs, *waits])
    requests = _requests(jobs)
    cuts = _cuts(tenant, runs)
    like = _like(tenant, [(job, requests[job.row.record_id][0]) for job in jobs[len(runs) :]])
    day, charged = _today(tenant, moment, today)
    price_ids = [group[6] for group in groups] + [price for _, _, price in _flat([cuts, like])]
    prices = tags([*price_ids, *charged])
    through = _read_through(jobs, marks, moment)
    opened = [
        _open(job, requests[job.row.record_id], cuts, like, prices, since, gone, through) for job in jobs
    ]
    return Live(
        running,
        waiting,
        unpriced,
        unseen,
        _running_gpus(groups),
        per_currency(_amounts(groups, prices)),
        _money(day, {prices[price].currency for price in charged if price in prices}),
        opened[: len(runs)],
        running_page.next,
        opened[len(runs) :],
        waiting_page.next,
        running_page.is_first and waiting_page.is_first,
        any(tag.by_total for tag in prices.values()),
    )


def list_open(
    tenant: Tenant, rows: Sequence[RatedJob], marks: Sequence[Mark], *, moment: datetime
) -> list[OpenJob]:
    """These jobs of the tenant that run or wait, with what they cost. A fixed number of queries."""
    runs = [row for row in rows if row.started is not None]
    waits = [row for row in rows if row.started is None]
    jobs = costed(tenant, [*runs, *waits])
    requests, cuts = _requests(jobs), _cuts(tenant, runs)
    like = _like(tenant, [(job, requests[job.row.record_id][0]) for job in jobs[len(runs) :]])
    prices = tags(price for _, _, price in _flat([cuts, like]))
    since, gone, through = seen_since(marks), _gone(tenant), _read_through(jobs, marks, moment)
    return [_open(job, requests[job.row.record_id], cuts, like, prices, since, gone, through) for job in jobs]


def seen_since(marks: Sequence[Mark]) -> dict[str, int]:
    """By cluster the second from which on a run has to have been seen."""
    return {
        m.cluster: int(m.complete_through.timestamp()) - UNSEEN if m.complete_through else 0 for m in marks
    }


def _gone(tenant: Tenant) -> set[int]:
    return {record for (record,) in _rows(sql.GONE, {"tenant": tenant.pk})}


def _read_through(jobs: Sequence[Job], marks: Sequence[Mark], moment: datetime) -> dict[str, int]:
    now = int(moment.timestamp())
    return {job.row.cluster: now for job in jobs} | {
        m.cluster: int(m.complete_through.timestamp()) for m in marks if m.complete_through
    }


def _fetch(rows: QuerySet[RatedJob]) -> list[RatedJob]:
    """Jobs with their projects, by a statement that is planned once: over many months, planning is most of its time."""
    jobs = []
    with prepared_cursor() as cursor:
        cursor.execute(*rows.query.sql_with_params())
        for job, job.project in instances(cursor, RatedJob, Project):
            jobs.append(job)
    return jobs


def _rows(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with prepared_cursor(any_values=True) as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _requests(jobs: Sequence[Job]) -> dict[int, tuple[RequestedResources, str, int | None]]:
    """Per job what it holds or wants, as text too, and its time limit."""
    records = [job.row.record_id for job in jobs]
    rows_by_record = {record: rest for record, *rest in _rows(sql.REQUESTED, {"records": records})}
    requests = {}
    for job in jobs:
        row = job.row
        requested, limit, shares = rows_by_record.get(row.record_id, ("", None, "{}"))
        wants = (
            requested_resources.read(requested, json.loads(shares))
            if row.started is None and not row.gpus
            else RequestedResources()
        )
        requests[row.record_id] = (
            RequestedResources(
                gpus=row.gpus or wants.gpus,
                gpu_model=row.gpu_model or wants.gpu_model,
                mig_profile=row.mig_profile or wants.mig_profile,
                gpu_share=(row.share_num, row.share_den) if row.gpus else wants.gpu_share,
                cpu_milli=wants.cpu_milli or row.cpu_milli,
                memory_mib=wants.memory_mib or row.memory_mib,
                gpu_memory_mib=row.gpu_memory_mib,
                billing=wants.billing or row.billing,
            ),
            requested,
            limit,
        )
    return requests


def _cuts(tenant: Tenant, runs: Sequence[RatedJob]) -> dict[int, list[Cut]]:
    """Per record the terms of its last rated second."""
    cuts: dict[int, list[Cut]] = defaultdict(list)
    finishes = [row.seen_until or 0 for row in runs]
    values = {"tenant": tenant.pk, "records": [row.record_id for row in runs], "finishes": finishes}
    for record, *cut in _rows(sql.TERMS, values):
        cuts[record].append((cut[0], cut[1], cut[2]))
    return cuts


def _like(tenant: Tenant, waits: Sequence[tuple[Job, RequestedResources]]) -> dict[int, list[Cut]]:
    """Per waiting record the terms of the newest job of its account that ran in the same way."""
    if not waits:
        return {}
    rows = [
        (n, job.row.cluster, job.row.account, job.row.queue, job.row.qos, want.gpu_model, want.mig_profile)
        for n, (job, want) in enumerate(waits)
    ]
    names = ("places", "clusters", "accounts", "queues", "qoses", "models", "profiles")
    columns = {name: [row[n] for row in rows] for n, name in enumerate(names)}
    cuts: dict[int, list[Cut]] = defaultdict(list)
    for place, *cut in _rows(sql.LIKE, {"tenant": tenant.pk, "recent": RECENT, **columns}):
        cuts[waits[place][0].row.record_id].append((cut[0], cut[1], cut[2]))
    return cuts


def _open(
    job: Job,
    request: tuple[RequestedResources, str, int | None],
    cuts: Mapping[int, list[Cut]],
    like: Mapping[int, list[Cut]],
    prices: Tags,
    since: Mapping[str, int],
    gone: Collection[int],
    read_through: Mapping[str, int],
) -> OpenJob:
    row = job.row
    holds, requested, limit = request
    stale = row.started is not None and not (row.seen_until or 0) >= since.get(row.cluster, 2**62)
    unseen = stale or row.record_id in gone
    quantities = _quantities(
        holds.gpus, holds.gpu_share, holds.cpu_milli, holds.memory_mib, holds.gpu_memory_mib, holds.billing
    )
    job_cuts = (like if row.started is None else cuts).get(row.record_id, [])
    parts = tuple(
        Part(Resource(resource), Verdict(verdict), quantities[Resource(resource)], prices.get(price or 0))
        for resource, verdict, price in job_cuts
    )
    resources = {
        resource for resource, quantity in quantities.items() if quantity and not resource.is_measure
    }
    unweighed = any(part.resource.is_measure and not part.quantity for part in parts)
    if unseen or (row.started is None and (unweighed or resources - {part.resource for part in parts})):
        parts = ()
    until = row.seen_until if row.started is not None else read_through[row.cluster]
    if row.started is not None and until is not None and not unseen:
        until = max(until, since[row.cluster] + UNSEEN)
    return OpenJob(job, parts, holds, requested, limit, unseen, until)


def _quantities(
    gpus: int, share: tuple[int, int], cpu_milli: int, memory_mib: int, gpu_memory_mib: int, billing: int
) -> dict[Resource, Fraction]:
    return {
        Resource.GPU: Fraction(gpus * share[0], share[1]),
        Resource.CPU: Fraction(cpu_milli, 1000),
        Resource.MEMORY: Fraction(memory_mib, 1024),
        Resource.GPU_MEMORY: Fraction(gpu_memory_mib, 1024),
        Resource.BILLING: Fraction(billing),
    }


def _per_hour(parts: Iterable[Part]) -> Money | None:
    amounts = per_currency(cost(part.tag, part.quantity * HOUR) for part in parts if part.tag)
    return amounts[0] if len(amounts) == 1 else None


def _running_gpus(groups: Iterable[Sequence[Any]]) -> list[RunningGpus]:
    counts: dict[tuple[str, str, Fraction], int] = defaultdict(int)
    for model, profile, num, den, resource, _, _, gpus, *_ in groups:
        if resource == Resource.GPU:
            counts[model, profile, Fraction(num, den)] += gpus
    running_gpus = [RunningGpus(*key, gpus) for key, gpus in counts.items()]
    return sorted(
        running_gpus,
        key=lambda running_gpus: (
            -running_gpus.gpus * running_gpus.share,
            running_gpus.gpu_model,
            running_gpus.mig_profile,
        ),
    )


def _amounts(groups: Iterable[Sequence[Any]], prices: Tags) -> Iterable[Money]:
    for _, _, num, den, resource, _, price, gpus, *rest in groups:
        if price in prices:
            quantity = _quantities(gpus, (num, den), *rest)[Resource(resource)]
            yield cost(prices[price], quantity * HOUR)


def _today(tenant: Tenant, moment: datetime, today: date) -> tuple[Fraction, set[int]]:
    """The day's amount, and the prices of the period that it lies in. Two queries."""
    days = DayTotal.objects.filter(tenant=tenant, day=today).costs()
    amount = sum((Fraction(amount) / share_den / HOUR for share_den, amount in days), Fraction(0))
    charged = PeriodTotal.objects.filter(
        tenant=tenant, period__start__lte=moment, period__end__gt=moment, price_id__isnull=False
    )
    return amount, {price for price in charged.values_list("price_id", flat=True).distinct() if price}


def _money(amount: Fraction, currencies: set[str]) -> Money | None:
    return Money(amount, currencies.pop()) if len(currencies) == 1 else None


def _flat(cuts: Iterable[Mapping[int, list[Cut]]]) -> Iterable[Cut]:
    return [cut for by_record in cuts for rows in by_record.values() for cut in rows]
