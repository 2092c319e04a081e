"""The list of a tenant's jobs, and one job with what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import Http404, HttpResponse, HttpResponseBase, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import RatedJob
from billing.queries import job_lists, job_parts, jobs_in_files
from billing.queries import jobs as reading
from billing.queries.cost_explorer import Days
from billing.queries.job_life import JobLife, life
from billing.queries.job_lists import Order
from billing.queries.jobs import Choices, Job, JobFilter, Piece
from billing.rules.formatting import localized
from billing.rules.period import midnight
from billing.service_credits import listing
from clusters.absent_records import RowsInFilesError
from portal.core.tenants.access import Action, Right
from portal.ops.service_credits import amount_of
from portal.web import format as say
from portal.web import job_acts
from portal.web import job_life as shown
from portal.web.access_decorators import ScopedStream, TenantRequest, answer, tenant_page
from portal.web.badges import job_badge
from portal.web.cost_selection import days_text
from portal.web.day_ranges import DayRangeError, read_days
from portal.web.form_input import options
from portal.web.job_columns import USUAL, JobCell, cells, column_options, headings, read_columns

NEEDS_RANGE = gettext_noop(
    "Choose a period or days to sort by cost or GPU-hours. Until then, the newest come first."
)
ORDERS = {
    Order.NEWEST: gettext_noop("Newest"),
    Order.OLDEST: gettext_noop("Oldest"),
    Order.COST: gettext_noop("Cost"),
    Order.GPU_HOURS: gettext_noop("GPU-hours"),
}
LONGEST = 200  # characters of a search
MORE = {
    "account": gettext_noop("Account"),
    "cluster": gettext_noop("Cluster"),
    "queue": gettext_noop("Queue"),
    "qos": gettext_noop("QOS"),
    "part_of": gettext_noop("Parts of"),
}
STATES = (
    *("COMPLETED", "SUCCEEDED", "RUNNING", "PENDING", "FAILED", "CANCELLED", "TIMEOUT"),
    *("OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "Evicted", "NodeLost", "OOMKilled"),
)
SPELLINGS = {f"{name},{name.capitalize()}" if name.isupper() else name: name for name in STATES}
"""What the form sends for each: Slurm says RUNNING, Kubernetes Running, and people want both."""


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """A row of the list: the job, and its cells between number and cost."""

    job: Job
    cells: Sequence[JobCell]


@tenant_page(Action.READ, area="jobs")
def jobs(request: TenantRequest) -> HttpResponse:
    query = request.GET
    selection = _selection(request)
    filters, order, names = selection.filters, selection.order, read_columns(query)
    columns = headings(names)
    jobs_in_files.show(filters)
    bounded = filters.period is not None or filters.ran is not None
    is_first = not query.get("before")
    totals = job_lists.totals(request.tenant, filters) if query.get("totals") and is_first else None
    rows, more = job_lists.listed(
        request.tenant, filters, order, after=query.get("before", ""), read=totals.jobs_read if totals else ()
    )
    page = {
        "jobs": [JobRow(job=job, cells=cells(job, columns, request.zone)) for job in rows],
        "older": _address(query, before=more) if more else "",
        "filters": filters,
        "is_set": filters.is_set or order is not Order.NEWEST,
        "chosen": _chosen(filters, selection.days),
        "more_filters": [(name, query[name]) for name in MORE if query.get(name)],
        "first": query.get("from", ""),
        "through": query.get("through", ""),
        "error": selection.error,
        "hint": _(NEEDS_RANGE)
        if order.needs_range and filters.period is None and filters.ran is None
        else "",
        "orders": options([(one.value, _(label)) for one, label in ORDERS.items()], order.value),
        "columns": () if tuple(names) == USUAL else names,  # which other links keep
        "column_options": column_options(names),
        "headings": columns,
        "colspan": len(columns) + 2,
        "kept": [
            (name, value)
            for name in query
            if name not in {"col", "before"}
            for value in query.getlist(name)
            if value
        ],
        "is_first": is_first,
        "in_files": "" if bounded else jobs_in_files.absent_months(),
        "totals": totals,
        "too_many": job_lists.MOST_ADDED if query.get("totals") and is_first and totals is None else 0,
        "totals_address": _address(query, totals="1"),
        "csv_address": _address(query, totals="", col=""),
        **_offered(selection),
    }
    return answer(request, request.frame, page, whole="tenant/jobs.html", part="tenant/_job_rows.html")


@tenant_page(Action.READ, area="jobs")
def jobs_csv(request: TenantRequest) -> HttpResponseBase:
    selection = _selection(request)
    if selection.error:
        raise Http404(selection.error)
    jobs_in_files.refuse_unreadable(selection.filters)
    _refuse_unbounded(selection.filters)
    return ScopedStream(
        request.tenant,
        _shown(selection, job_lists.as_csv(request.tenant, selection.filters)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{request.tenant.slug}-jobs.csv"'},
    )


def _shown(selection: Selection, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """In the transaction of the stream: to its end a month that is not dropped now stays so."""
    _refuse_unbounded(selection.filters)
    jobs_in_files.show(selection.filters, most=None)
    yield from pieces


def _refuse_unbounded(filters: JobFilter) -> None:
    """A file has no room for a sentence: of all jobs none is made without some of them."""
    bounded = filters.period is not None or filters.ran is not None
    if not bounded and (months := jobs_in_files.absent_months()):
        raise RowsInFilesError("rows-in-files", months=months)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the address selects, and what it could."""

    filters: JobFilter
    order: Order
    days: Days | None
    error: str  # a sentence where the days that were typed are none
    choices: Choices
    own: tuple[str, ...]  # what the person is called on the clusters
    only_own: bool  # others' jobs are not the person's to see


def _selection(request: TenantRequest) -> Selection:
    """What is no choice is not found."""
    query = request.GET
    choices, own = reading.choices(request.tenant), request.tenant.scheduler_users
    error, days = "", None
    try:
        days = read_days(query)
        order = Order(query.get("sort") or Order.NEWEST)
    except DayRangeError as refusal:
        error, order = str(refusal), Order.NEWEST
    except ValueError as unknown:
        raise Http404("no such order") from unknown
    only_own = Action.READ_ALL not in request.may
    filters = _filters(choices, query, own, days, request.zone, only_own)
    return Selection(
        filters=filters, order=order, days=days, error=error, choices=choices, own=own, only_own=only_own
    )


def _offered(selection: Selection) -> dict[str, object]:
    choices, filters = selection.choices, selection.filters
    states = [(sent, _(job_badge(name).label)) for sent, name in SPELLINGS.items()]
    states += [(word, word) for word in {filters.state} - {"", *SPELLINGS}]  # of one scheduler
    models = [*choices.gpu_models, *({filters.gpu_model} - {"", *choices.gpu_models})]
    return {
        "users": choices.users,
        "own_users": selection.own,
        "only_own": selection.only_own,
        "projects": options(choices.projects, filters.project),
        "gpu_models": options([(name, name) for name in models], filters.gpu_model),
        "states": options(states, filters.state),
        "periods": options(
            [(say.period_key(period), say.period(period)) for period in choices.periods],
            say.period_key(filters.period) if filters.period else "",
        ),
    }


def _address(query: QueryDict, **changed: str) -> str:
    """The query of the present list with other values; "" leaves one out."""
    pairs = [
        (name, value)
        for name in query
        if name not in changed and name != "before"
        for value in query.getlist(name)
        if value
    ]
    return urlencode([*pairs, *((name, value) for name, value in changed.items() if value)])


@tenant_page(Action.READ, area="jobs")
def job(request: TenantRequest, record: int) -> HttpResponse:
    try:
        view = jobs_in_files.load_job(request.tenant, record)
    except RatedJob.DoesNotExist as missing:
        raise Http404("no such job") from missing
    rated_job, pieces = view.job, view.pieces
    job_life = life(record, with_measured=view.is_measured)
    page = {
        "stages": shown.stages(job_life) if job_life else [],
        "cuts": shown.cuts(pieces),
        "strip": shown.strip(job_life, request.zone) if job_life else [],
        "strip_summary": shown.strip_summary(job_life) if job_life and job_life.stretches else "",
        "job": rated_job,
        "is_measured": view.is_measured,
        "parts_in_files": view.parts_in_files,
        "whole": _whole(request, rated_job),
        "facts": {
            **_facts(rated_job.row, request.zone),
            **(_measured(job_life) if view.is_measured else {}),
        },
        "pieces": pieces,
        "credits": [(row, amount_of(row)) for row in listing.of_run(request.tenant, record)],
        "acts": job_acts.addresses(request.tenant.slug, rated_job.row)
        if Right.JOBS.name.lower() in request.frame.rights
        else [],
        "formulas": [text for piece in pieces if (text := _formula(piece))],
    }
    return answer(request, request.frame, page, whole="tenant/job.html")


@dataclass(frozen=True, kw_only=True)
class WholeJob:
    """The job that a run is a part of."""

    job: Job
    parts: Sequence[Job]  # the newest
    address: str  # of the list of all of them


def _whole(request: TenantRequest, part: Job) -> WholeJob | None:
    whole = job_parts.whole(request.tenant, part)
    if whole is None:
        return None
    (job, parts), row = whole, part.row
    query = {"part_of": row.part_of, "cluster": row.cluster, "project": str(row.project_id)}
    return WholeJob(job=job, parts=parts, address=urlencode(query))


def _filters(
    choices: Choices,
    query: QueryDict,
    own: tuple[str, ...],
    days: Days | None,
    zone: ZoneInfo,
    only_own: bool,
) -> JobFilter:
    """What the address selects by, of their own jobs where the person sees no others.

    A period or project that is not the tenant's is no choice: 404.
    """
    text = {name: query.get(name, "").replace("\0", "").strip()[:LONGEST] for name in query}
    periods = {say.period_key(period): period for period in choices.periods}
    projects = {str(pk): pk for pk, _ in choices.projects}
    try:
        return JobFilter(
            period=periods[text["period"]] if text.get("period") else None,
            project=projects[text["project"]] if text.get("project") else None,
            gpu_model=text.get("gpu_model", ""),
            state=text.get("state", ""),
            user=text.get("user", ""),
            account=text.get("account", ""),
            cluster=text.get("cluster", ""),
            queue=text.get("queue", ""),
            qos=text.get("qos", ""),
            part_of=text.get("part_of", ""),
            ran=_seconds(days, zone) if days else None,
            users=own if text.get("mine") or only_own else None,
            q=text.get("q", ""),
        )
    except KeyError as unknown:
        raise Http404("no such choice") from unknown


def _chosen(filters: JobFilter, days: Days | None) -> str:
    """What the form has no field for, as pages of costs lead here with it."""
    texts = [f"{_(label)}: {value}" for name, label in MORE.items() if (value := getattr(filters, name))]
    if days:
        texts.insert(0, _("Ran {days}, with what each cost in all").format(days=days_text(days)))
    return "; ".join(texts)


def _seconds(days: Days, zone: ZoneInfo) -> tuple[int, int]:
    first, end = (int(midnight(day, zone=zone).timestamp()) for day in (days.first, days.end))
    return first, end


def _facts(row: RatedJob, zone: ZoneInfo) -> dict[str, str]:
    return {
        _("Project"): row.project.name,
        _("User"): row.user,
        _("Cluster"): row.cluster,
        _("Account"): row.account,
        _("Queue"): row.queue,
        _("QOS"): row.qos,
        _("Nodes"): say.whole(row.nodes),
        _("CPU cores"): localized(say.plain(Fraction(row.cpu_milli, 1000))),
        _("Memory"): _memory(row.memory_mib),
        **({_("GPU memory"): _memory(row.gpu_memory_mib)} if row.gpu_memory_mib else {}),
        **({_("Slurm billing"): say.whole(row.billing)} if row.billing else {}),
        _("Submitted"): say.at_second(row.submitted, zone),
        _("Started"): say.at_second(row.started, zone),
        _("Ended"): say.at_second(row.ended, zone)
        or (
            _("seen until {moment}").format(moment=say.at_second(row.seen_until, zone))
            if row.seen_until
            else ""
        ),
    }


def _measured(job_life: JobLife | None) -> dict[str, str]:
    """Energy, of a cluster that counts it: of a job that runs on Slurm it is not known yet. And use beyond requests."""
    if job_life is None:
        return {}
    so_far = "" if job_life.ended is not None else f" {_('so far')}"
    facts = {one.title: f"{say.quantity(one.quantity)} {one.unit}{so_far}" for one in job_life.beyond}
    if (energy := job_life.energy) is None:
        return facts
    if energy.quantity is None:
        return {energy.title: _("unknown") if job_life.ended is not None else _("not measured yet"), **facts}
    return {energy.title: f"{say.quantity(energy.quantity)} {energy.unit}{so_far}", **facts}


def _memory(mib: int) -> str:
    gib, rest = divmod(mib, 1024)
    return f"{say.whole(mib)} MiB" if rest or not gib else f"{say.whole(gib)} GiB"


def _formula(piece: Piece) -> str:
    if piece.tag is None or (cost := piece.cost) is None:
        return ""
    quantity = say.usage(piece.units, piece.share, piece.meter)
    unit_price = say.price(piece.tag.unit_price, piece.tag.currency)
    if piece.former is not None:
        unit_price = f"({unit_price} − {say.price(piece.former.unit_price, piece.former.currency)})"
    amount = say.exact_money(cost)
    equals = "" if amount.startswith("≈") else "= "
    return f"{quantity} ÷ {say.whole(3600)} × {unit_price} {equals}{amount}"
