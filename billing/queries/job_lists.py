"""Lists of a tenant's jobs in other orders than the newest first, their totals, and all of them as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

from django.db.models import F, Q, QuerySet

from billing.documents.csv import Cell, instant, rows_to_csv
from billing.models import RatedJob, Verdict
from billing.queries.cost_classes import Bound, bounds, hour_bounds
from billing.queries.costs import per_currency
from billing.queries.job_parts import JobKey, folded, folds, heads, summed_over_parts
from billing.queries.jobs import COST_RANK, NEWEST_FIRST, PAGE, Job, JobFilter, all_matching, costed, matching
from billing.rules.money import Money, rounded_text
from portal.core import pagination
from portal.core.tenants.models import Tenant

MOST_ADDED = 5_000  # jobs that totals are computed of
CSV_PAGES = (PAGE, 1_000)  # jobs read at once: few at first, so that an answer begins at once, then as many
_PLACE = re.compile(rf"(-?\d{{1,40}}(?:\.\d{{1,30}})?){pagination.BETWEEN}(\d{{1,18}})", re.ASCII)
HEADER = (
    *("job", "name", "user", "project", "account", "cluster", "queue", "qos", "state", "gpus", "gpu_model"),
    *("submitted", "started", "ended", "waited_seconds", "duration_seconds", "gpu_hours", "cost", "currency"),
)


class Order(StrEnum):
    """What a list of jobs is ordered by. By cost and GPU-hours of a range of days it reads all jobs of it."""

    NEWEST = "newest"
    OLDEST = "oldest"
    COST = "cost"
    GPU_HOURS = "gpu-hours"

    @property
    def needs_range(self) -> bool:
        return self in {Order.COST, Order.GPU_HOURS}


@dataclass(frozen=True, slots=True)
class Totals:
    """Of jobs, with all that they cost. `cost` is by currency, without the `unpriced` jobs."""

    jobs: int
    gpu_seconds: Fraction
    cost: list[Money]
    unpriced: int
    jobs_read: Sequence[Job]
    """All of them, of which `listed` need not read what they cost."""


def listed(
    tenant: Tenant, filters: JobFilter, order: Order, *, after: str = "", read: Sequence[Job] = ()
) -> tuple[list[Job], str]:
    """A page of jobs and the cursor of the next one. At most seven queries, by cost and GPU-hours four more.

    By cost and GPU-hours only of a period or a range of days: the others have no bound, and are the newest first.
    `read`: all jobs that match, where the request has read them; that saves one query, and one of a range of days.
    """
    if order.needs_range and filters.period is None and filters.ran is None:
        order = Order.NEWEST
    if order is Order.NEWEST:
        return newest(tenant, filters, after=after, read=read)
    every, several = all_matching(tenant, filters), folds(tenant, filters)
    rows = _in_range(tenant, filters, read).select_related("project")
    rows = heads(rows, every) if several else rows
    if order is Order.OLDEST:
        page = pagination.page(rows, "shown_at", "record_id", after=after, size=PAGE)
        return folded(tenant, page.rows, every, filters, read=read), page.next
    rank: Any = COST_RANK if order is Order.COST else F("gpu_units") * F("share_num") / F("share_den")
    ranks = rows.annotate(rank=summed_over_parts(rank, every) if several else rank)
    place = _PLACE.fullmatch(after)
    limits: list[Bound] = []
    if filters.period is not None and not several:
        look = bounds if order is Order.COST else hour_bounds
        limits = look(tenant, filters.period, behind=Decimal(place[1]) if place else None)
    ranked, more = _ranked(ranks, place, limits)
    return folded(tenant, ranked, every, filters, read=read), more


def newest(
    tenant: Tenant, filters: JobFilter, *, after: str = "", read: Sequence[Job] = ()
) -> tuple[list[Job], str]:
    """A page of jobs, the newest first, and the cursor of the next one. Three queries, five with jobs of several parts;
    of those that ran in a range two more. `read` as of `listed`.
    """
    every = all_matching(tenant, filters)
    chosen = matching(tenant, filters).select_related("project")
    chosen = heads(chosen, every) if folds(tenant, filters) else chosen
    if filters.ran is not None:
        rows, more = _ran(chosen, *filters.ran, after=after, read=read)
        return folded(tenant, rows, every, filters, read=read), more
    page = pagination.page(chosen, *NEWEST_FIRST, after=after, size=PAGE)
    return folded(tenant, page.rows, every, filters, read=read), page.next


def _ran(
    chosen: QuerySet[RatedJob], since: int, until: int, *, after: str, read: Sequence[Job]
) -> tuple[list[RatedJob], str]:
    """Those that began in the range, then those that were running when it began.

    Apart, as the index of lists finds the first at once, and the others are few: looked up by their ends.
    """
    ran = chosen.filter(started__isnull=False)
    began = ran.filter(shown_at__gte=since, shown_at__lt=until)
    page = pagination.page(began, *NEWEST_FIRST, after=after, size=PAGE)
    if page.next:
        return page.rows, page.next
    rest = PAGE - len(page.rows)
    ids = _going_on(ran, since, read if rest else ())  # of `read` also parts, which are left out below
    if not ids or not rest:
        more = page.rows[-1] if ids else None
        return page.rows, f"{more.shown_at}{pagination.BETWEEN}{more.record_id}" if more else ""
    running = ran.filter(record_id__in=ids)
    others = pagination.page(running, *NEWEST_FIRST, after=after, size=rest)
    return [*page.rows, *others.rows], others.next


def totals(tenant: Tenant, filters: JobFilter) -> Totals | None:
    """Of all jobs that match; None of more than MOST_ADDED. At most three queries."""
    rows = list(_in_range(tenant, filters).select_related("project")[: MOST_ADDED + 1])
    if len(rows) > MOST_ADDED:
        return None
    jobs = costed(tenant, rows)
    return Totals(
        _count(rows, filters),
        sum((job.gpu_seconds for job in jobs), Fraction(0)),
        per_currency(job.cost for job in jobs if job.cost is not None),
        _count([job.row for job in jobs if job.verdict is Verdict.UNPRICED], filters),
        jobs,
    )


def _count(rows: Sequence[RatedJob], filters: JobFilter) -> int:
    """How many jobs, as lists show them: parts of one are one job, but where its parts are listed."""
    if filters.part_of:
        return len(rows)
    return len({JobKey.of(row) if row.part_of else row.record_id for row in rows})


def as_csv(tenant: Tenant, filters: JobFilter) -> Iterator[bytes]:
    """All jobs that match, the newest first, read page by page while they are sent. Runs inside the tenant's scope."""
    return rows_to_csv(HEADER, _csv_rows(tenant, filters))


def _csv_rows(tenant: Tenant, filters: JobFilter) -> Iterator[list[Cell]]:
    rows, after = _in_range(tenant, filters).select_related("project"), ""
    size, then = CSV_PAGES
    while True:
        page = pagination.page(rows, *NEWEST_FIRST, after=after, size=size)
        yield from (_csv_row(job) for job in costed(tenant, page.rows))
        after, size = page.next, then
        if not after:
            return


def _csv_row(job: Job) -> list[Cell]:
    row = job.row
    return [
        *(
            job.number,
            row.name,
            row.user,
            row.project.name,
            row.account,
            row.cluster,
            row.queue,
            row.qos,
            row.state,
        ),
        *(row.gpus, row.gpu_model),
        *(instant(second) for second in (row.submitted, row.started, row.ended)),
        *(waited(job), job.duration),
        Decimal(rounded_text(job.gpu_seconds / 3600, 6)),
        None if job.cost is None else Decimal(rounded_text(job.cost.amount, 6)),
        "" if job.cost is None else job.cost.currency,
    ]


def waited(job: Job) -> int | None:
    """Seconds from its submission to its start."""
    if job.submitted is None or job.started is None:
        return None
    return max(job.started - job.submitted, 0)


def _going_on(ran: QuerySet[RatedJob], since: int, read: Sequence[Job]) -> list[int]:
    """Records of those that were running when the range began; among `read` without a query."""
    if read:
        return [job.row.record_id for job in read if job.row.shown_at < since]
    going_on = Q(ended__gt=since) | Q(ended=None, seen_until__gt=since)
    return list(ran.filter(going_on, shown_at__lt=since).order_by().values_list("record_id", flat=True))


def _in_range(tenant: Tenant, filters: JobFilter, read: Sequence[Job] = ()) -> QuerySet[RatedJob]:
    """As `newest` lists them, in one query set: those that began before a range are looked up by their ends first."""
    rows = matching(tenant, filters)
    if filters.ran is None:
        return rows
    since, until = filters.ran
    ran = rows.filter(started__isnull=False)
    ids = _going_on(ran, since, read)
    began = Q(shown_at__gte=since, shown_at__lt=until)
    return ran.filter(began | Q(record_id__in=ids)) if ids else ran.filter(began)


def _ranked(
    rows: QuerySet[Any], place: re.Match[str] | None, limits: Sequence[Bound]
) -> tuple[list[RatedJob], str]:
    """By `rank`, the highest first, behind a cursor of rank and record; from the first bound that the page reaches."""
    if place is not None:
        value, record = Decimal(place[1]), int(place[2])
        rows = rows.filter(Q(rank__lt=value) | Q(rank=value, record_id__lt=record))
    rows = rows.order_by("-rank", "-record_id")
    for limit in limits:
        page_rows = list(rows.filter(part_of="", cost_class__gte=limit.lowest)[: PAGE + 1])
        if len(page_rows) > PAGE and page_rows[PAGE].rank >= limit.rank:
            break
    else:
        page_rows = list(rows[: PAGE + 1])
    last = page_rows[PAGE - 1] if len(page_rows) > PAGE else None
    more = f"{last.rank:f}{pagination.BETWEEN}{last.record_id}" if last is not None else ""  # never 0E-18
    return page_rows[:PAGE], more
