"""A tenant's jobs, and one job with the pieces that its cost is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

from django.db import connection
from django.db.models import ExpressionWrapper, F, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils.translation import gettext, gettext_noop

from billing.models import BillingPeriod, RatedJob, Resource, Verdict
from billing.models.rated import AMOUNT
from billing.queries.costs import Tag, Tags, cost, per_currency, tag
from billing.queries.visible_projects import list_projects
from billing.rules.meters import Meter
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from portal.prepared import prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "jobs.sql")

PAGE = 50
NEWEST = 300  # jobs that suggestions for a quote are taken from
MOST_USERS = 200  # suggestions
RUNNING = "Running"  # of a job in several parts, as Kubernetes says it of each
EMPTY = "(none)"  # of a filter: those where it is empty
NEWEST_FIRST = ("-shown_at", "-record_id")
COST_RANK = ExpressionWrapper(
    F("cost_units") * Coalesce(F("cost_price__unit_price"), 1, output_field=AMOUNT), output_field=AMOUNT
)
"""What lists of the most expensive jobs are ordered by; as `TOP_JOBS` has it."""
METERS = {
    Resource.GPU: (gettext_noop("GPU"), Meter.GPU_HOUR),
    Resource.CPU: (gettext_noop("CPU"), Meter.CPU_CORE_HOUR),
    Resource.MEMORY: (gettext_noop("Memory"), Meter.MEMORY_GIB_HOUR),
    Resource.GPU_MEMORY: (gettext_noop("GPU memory"), Meter.GPU_MEMORY_GIB_HOUR),
    Resource.BILLING: (gettext_noop("Slurm billing"), Meter.BILLING_HOUR),
}


@dataclass(frozen=True, slots=True)
class Parts:
    """Those that a job is made of, such as pods: two or more. Moments are epoch seconds."""

    count: int
    running: int
    submitted: int | None  # the first of them
    started: int | None  # the first of them
    finish: int | None  # the last end, or how far one was seen


@dataclass(frozen=True, slots=True)
class Job:
    """A job and what it costs so far: exact, None where no price was applied to it.

    Of a job in several parts `row` is one of them, and all else is of all.
    """

    row: RatedJob
    gpu_seconds: Fraction
    cost: Money | None
    verdict: Verdict
    by_total: bool = False  # `cost` is at the first unit's price; the total of the period decides
    parts: Parts | None = None

    @property
    def number(self) -> str:
        """The scheduler's; ours where it has none."""
        return self.row.part_of if self.parts else self.row.job_id or str(self.row.record_id)

    @property
    def name_as_part(self) -> str:
        """Beside the other parts of its job: a pod without its namespace."""
        return self.row.job_id.partition("/")[2] or self.number

    @property
    def state(self) -> str:
        """The scheduler's word; of several parts that of the newest, but while one of them runs."""
        return RUNNING if self.parts and self.parts.running else self.row.state

    @property
    def submitted(self) -> int | None:
        return self.parts.submitted if self.parts else self.row.submitted

    @property
    def started(self) -> int | None:
        return self.parts.started if self.parts else self.row.started

    @property
    def ended(self) -> int | None:
        """None while it, or a part of it, runs; of a single one also while it waits."""
        if self.parts:
            return None if self.parts.running else self.parts.finish
        return self.row.ended

    @property
    def duration(self) -> int | None:
        """Seconds from its start to its end, or as far as it was seen."""
        finish = self.row.ended if self.row.ended is not None else self.row.seen_until
        finish = self.parts.finish if self.parts else finish
        return None if self.started is None or finish is None else finish - self.started

    @property
    def running(self) -> bool:
        return self.started is not None and self.ended is None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list; an empty text means all, and EMPTY those that have none."""

    period: BillingPeriod | None = None  # in which it started, or was submitted while it waits
    project: int | None = None
    gpu_model: str = ""
    state: str = ""  # as of `in_state`; several with commas between, as each scheduler has its own spelling
    user: str = ""
    account: str = ""
    cluster: str = ""
    queue: str = ""
    qos: str = ""
    ran: tuple[int, int] | None = None  # seconds since 1970 [from, until) in some of which it ran
    users: tuple[str, ...] | None = None  # of these; None: of all
    part_of: str = ""  # a job of several parts: then its parts are listed
    q: str = ""  # beginning of the job id, or part of the name

    @property
    def is_set(self) -> bool:
        return self != JobFilter()


@dataclass(frozen=True, slots=True)
class Piece:
    """Rated usage of one job that has one window, project, resource and price, and one invoice or none.

    What was never invoiced and taken back again leaves no piece. `units` is negative where an
    invoiced piece is taken back. An invoiced piece has the price that its invoice states; where that was corrected
    since, a piece more has what it came to by that.
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
    line: int | None  # its position there; None also where taken back and charged again it adds nothing
    paid_by: str  # another tenant, on whose invoice it is or will be
    former: Tag | None = None  # as it was charged already, where its price was corrected since

    @property
    def resource_name(self) -> str:
        return gettext(METERS[Resource(self.resource)][0])

    @property
    def meter(self) -> Meter:
        return METERS[Resource(self.resource)][1]

    @property
    def resource_seconds(self) -> Fraction:
        return self.units * self.share

    @property
    def cost(self) -> Money | None:
        """Of a correction of the price the difference."""
        if self.tag is None:
            return None
        amount = cost(self.tag, self.resource_seconds)
        return amount - cost(self.former, self.resource_seconds) if self.former else amount


@dataclass(frozen=True, slots=True)
class Choices:
    """What the filters offer."""

    periods: list[BillingPeriod]  # newest first
    projects: list[tuple[int, str]]
    gpu_models: list[str]
    users: list[str]


def choices(tenant: Tenant) -> Choices:
    """Three queries over bounded totals."""
    values: dict[str, Any] = {"tenant": tenant.pk, "most": MOST_USERS, "resources": Resource.values}
    with connection.cursor() as cursor:
        cursor.execute(sql.CHOICES, values)
        models, users = cursor.fetchone()
    return Choices(
        list(BillingPeriod.objects.filter(tenant=tenant).order_by("-start")),
        list(list_projects(tenant).values_list("pk", "name")),
        models,
        users,
    )


def seconds_of(period: BillingPeriod) -> tuple[int, int]:
    return int(period.start.timestamp()), int(period.end.timestamp())


def job(tenant: Tenant, record_id: int) -> tuple[Job, list[Piece]]:
    """Raises RatedJob.DoesNotExist. Four queries."""
    row = RatedJob.objects.runs().select_related("project").get(tenant=tenant, record_id=record_id)
    return costed(tenant, [row])[0], _pieces(tenant, row)


def matching(tenant: Tenant, filters: JobFilter) -> QuerySet[RatedJob]:
    jobs = RatedJob.objects.runs().filter(tenant=tenant)
    if filters.period is not None:
        start, end = seconds_of(filters.period)
        jobs = jobs.filter(shown_at__gte=start, shown_at__lt=end)
    if filters.project is not None:
        jobs = jobs.filter(project=filters.project)
    for name in ("gpu_model", "user", "account", "cluster", "queue", "qos", "part_of"):
        if value := getattr(filters, name):
            jobs = jobs.filter(**{name: "" if value == EMPTY else value})
    if filters.users is not None:
        jobs = jobs.filter(user__in=filters.users)
    if filters.state == EMPTY:
        jobs = jobs.filter(state="")
    elif filters.state:
        jobs = jobs.in_state({filters.state, *filters.state.split(",")})
    if filters.q:
        jobs = jobs.filter(Q(job_id__startswith=filters.q) | Q(name__icontains=filters.q))
    return jobs


def all_matching(tenant: Tenant, filters: JobFilter) -> QuerySet[RatedJob]:
    """All that match, those that ran in a range included: to look some of them up, not to list them."""
    jobs = matching(tenant, filters)
    if filters.ran is None:
        return jobs
    since, until = filters.ran
    going_on = Q(ended__gt=since) | Q(ended=None, seen_until__gt=since)
    return jobs.filter(Q(shown_at__gte=since) | going_on, started__isnull=False, shown_at__lt=until)


@dataclass(frozen=True, slots=True)
class Shapes:
    """What the newest jobs were told to be, each value once, the newest first."""

    gpu_models: tuple[str, ...]
    mig_profiles: tuple[str, ...]
    queues: tuple[str, ...]
    qoses: tuple[str, ...]


def shapes(tenant: Tenant) -> Shapes:
    """One query, over at most NEWEST jobs."""
    newest = RatedJob.objects.runs().filter(tenant=tenant).order_by(*NEWEST_FIRST)
    rows = list(newest.values_list("gpu_model", "mig_profile", "queue", "qos")[:NEWEST])
    return Shapes(*(tuple(dict.fromkeys(row[place] for row in rows if row[place])) for place in range(4)))


COSTED = (
    "record_id", "started", "ended", "seen_until", "unpriced",
    "gpu_units", "share_num", "share_den", "cpu_milli", "memory_mib",
)  # fmt: skip
"""What `costed` reads of a row."""


def costed(tenant: Tenant, rows: Sequence[RatedJob]) -> list[Job]:
    """Each job, which has its project, with the sum of its rated usage. One query.

    The rows may be tuples by name, as `values_list` reads them in half the time, that have COSTED.
    """
    if not rows:
        return []
    parts: dict[int, list[tuple[str, Tag | None, Fraction]]] = defaultdict(list)
    of_price = cache(tag)  # a page has few prices
    with prepared_cursor() as cursor:
        cursor.execute(sql.COSTS, {"tenant": tenant.pk, **_span(rows)})
        for record_id, verdict, share_den, units, *price in cursor.fetchall():
            price_tag = of_price(*price) if price[0] is not None else None
            parts[record_id].append((verdict, price_tag, Fraction(int(units), share_den)))
    return [
        summed(
            row, Fraction(row.gpu_units * row.share_num, row.share_den), parts[row.record_id], row.unpriced
        )
        for row in rows
    ]


def summed(
    row: RatedJob, gpu_seconds: Fraction, parts: Sequence[tuple[str, Tag | None, Fraction]], unpriced: bool
) -> Job:
    """From what it used: verdict, price and resource-seconds."""
    amounts = [cost(price, seconds) for _, price, seconds in parts if price]
    if len(amounts) > 1:
        amounts = per_currency(amounts)
    return Job(
        row,
        gpu_seconds,
        amounts[0] if len(amounts) == 1 else None,
        Verdict.UNPRICED if unpriced else _verdict(row, {verdict for verdict, _, _ in parts}),
        len(amounts) == 1 and any(price.by_total for _, price, _ in parts if price),
    )


def _verdict(row: RatedJob, verdicts: set[str]) -> Verdict:
    """The loudest: a job with an unpriced part is unpriced, one of which nothing is charged is waived."""
    if not verdicts:  # what holds no GPU has no row of what is not charged
        finish = row.ended or row.seen_until or 0
        held = row.started is not None and finish > row.started and (row.cpu_milli or row.memory_mib)
        return Verdict.WAIVED if held else Verdict.CHARGED
    return Verdict.WAIVED if verdicts == {Verdict.WAIVED} else Verdict.CHARGED


def _pieces(tenant: Tenant, row: RatedJob) -> list[Piece]:
    with connection.cursor() as cursor:
        cursor.execute(sql.PIECES, {"tenant": tenant.pk, "record": row.record_id})
        rows = cursor.fetchall()
    prices, corrected = _prices(tenant, {price for *_, price, _, _, _, _, _ in rows if price is not None})
    pieces: list[Piece] = []
    for project, resource, verdict, since, until, units, share_num, share_den, price, *billed in rows:
        number, line, payer, through, period_end = billed
        piece = Piece(
            project,
            resource,
            Verdict(verdict),
            datetime.fromtimestamp(since, UTC),
            datetime.fromtimestamp(until, UTC),
            int(units),
            Fraction(share_num, share_den),
            prices.get(price),
            number or "",
            line,
            payer or "",
        )
        pieces += corrected.apart(piece, price, through, period_end) if number else [piece]
    return pieces


@dataclass(frozen=True, slots=True)
class _Corrections:
    """What prices came to, each until its number, and the invoices that state what they came to afterwards."""

    amounts: Mapping[int, list[tuple[int, Decimal]]]
    invoices: Sequence[tuple[int, datetime, str]]

    def apart(self, piece: Piece, price: int, through: int, period_end: datetime) -> Iterator[Piece]:
        """The piece as its invoice charged it, and one for each correction of its price since."""
        since = [(number, amount) for number, amount in self.amounts.get(price, ()) if number > through]
        if piece.tag is None or not since:
            yield piece
            return
        steps = [replace(piece.tag, unit_price=amount) for _, amount in since] + [piece.tag]
        yield replace(piece, tag=steps[0])
        for (number, _), (former, corrected) in zip(since, pairwise(steps), strict=True):
            yield replace(
                piece, tag=corrected, former=former, line=None, invoice=self._invoice(number, period_end)
            )

    def _invoice(self, number: int, period_end: datetime) -> str:
        reaching = (name for reach, end, name in self.invoices if reach >= number and end >= period_end)
        return next(reaching, "")


def _prices(tenant: Tenant, prices: Collection[int]) -> tuple[Tags, _Corrections]:
    """As `tags` has them, and their corrections. One query, or none."""
    tags: dict[int, Tag] = {}
    amounts: dict[int, list[tuple[int, Decimal]]] = {}
    invoices: list[tuple[int, datetime, str]] = []
    if prices:
        with connection.cursor() as cursor:
            cursor.execute(sql.PRICES, {"tenant": tenant.pk, "prices": list(prices)})
            for price, *columns, numbers, former, reach, ends, names in cursor.fetchall():
                tags[price] = tag(*columns)
                if numbers:
                    amounts[price] = list(zip(numbers, former, strict=True))
                    invoices = list(zip(reach or (), ends or (), names or (), strict=True))
    return tags, _Corrections(amounts, invoices)


def _span(rows: Sequence[RatedJob]) -> dict[str, Any]:
    """The jobs, and the months that their present revisions touch: what lies beyond nets to nothing."""
    spans = [
        (row.started, row.ended or row.seen_until or row.started) for row in rows if row.started is not None
    ]
    return {
        "records": [row.record_id for row in rows],
        "first_month": month_of(min((since for since, _ in spans), default=0)),
        "last_month": month_of(max((until for _, until in spans), default=0)),
    }


def month_of(second: int) -> date:
    return datetime.fromtimestamp(second, UTC).date().replace(day=1)
