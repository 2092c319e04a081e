"""The list of a tenant's jobs, and one job with what it costs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import Literal
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import Http404, HttpRequest, HttpResponse, QueryDict

from billing.models import RatedJob, Resource, Verdict
from billing.queries import jobs as reading
from billing.queries.jobs import Choices, Cursor, Job, Wanted
from billing.queries.overview import days_of
from billing.rules.meters import Meter
from portal.core.tenants.access import Action
from portal.web import format as say
from portal.web.access_decorators import Visit, answer, tenant_page
from portal.web.shapes import Fact, JobFilters, JobPage, JobRow, JobsPage, Option, Piece, job_badge

LONGEST = 200  # characters of a search
STATES = (
    *("COMPLETED", "SUCCEEDED", "RUNNING", "PENDING", "FAILED", "CANCELLED", "TIMEOUT"),
    *("OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED"),
)
METERS = {
    Resource.GPU: ("GPU", Meter.GPU_HOUR),
    Resource.CPU: ("CPU", Meter.CPU_CORE_HOUR),
    Resource.MEMORY: ("Memory", Meter.MEMORY_GIB_HOUR),
    Resource.GPU_MEMORY: ("GPU memory", Meter.GPU_MEMORY_GIB_HOUR),
    Resource.BILLING: ("Slurm billing", Meter.BILLING_HOUR),
}
REASONS = {
    Verdict.WAIVED: "not charged by this plan",
    Verdict.UNPRICED: "no price covers it yet",
}


@tenant_page(Action.READ, area="jobs")
def jobs(request: HttpRequest, visit: Visit) -> HttpResponse:
    page = _page(visit, request.GET)
    return answer(request, visit.shell, page, whole="tenant/jobs.html", part="tenant/_rows.html")


@tenant_page(Action.READ, area="jobs")
def job(request: HttpRequest, visit: Visit, record: int) -> HttpResponse:
    return answer(request, visit.shell, _job_page(visit, record), whole="tenant/job.html")


def _page(visit: Visit, query: QueryDict) -> JobsPage:
    offered = reading.choices(visit.tenant)
    criteria = _wanted(offered, query)
    rows, more = reading.newest(visit.tenant, criteria, after=cursor_of(query.get("before", "")))
    older = ""
    if more is not None:
        filters = {name: query[name] for name in query if name != "before" and query[name]}
        older = "?" + urlencode({**filters, "before": f"{more.shown_at}-{more.record_id}"})
    return JobsPage(
        zone=visit.tenant.timezone,
        filters=_filters(offered, criteria),
        rows=tuple(job_row(row, visit.zone) for row in rows),
        older=older,
    )


def _wanted(offered: Choices, query: QueryDict) -> Wanted:
    """What the address asks for. A period or project that is not the tenant's is no choice: 404."""
    text = {name: query.get(name, "").replace("\0", "").strip()[:LONGEST] for name in query}
    periods = {days_of(period)[0].isoformat(): period for period in offered.periods}
    projects = {str(pk): pk for pk, _ in offered.projects}
    try:
        return Wanted(
            period=periods[text["period"]] if text.get("period") else None,
            project=projects[text["project"]] if text.get("project") else None,
            gpu_model=text.get("gpu_model", ""),
            state=text.get("state", ""),
            user=text.get("user", ""),
            q=text.get("q", ""),
        )
    except KeyError as unknown:
        raise Http404("no such choice") from unknown


def cursor_of(text: str) -> Cursor | None:
    """A text that is no cursor begins at the top, as without one."""
    match = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,18})", text)
    return Cursor(int(match[1]), int(match[2])) if match else None


def _filters(offered: Choices, criteria: Wanted) -> JobFilters:
    states = (*STATES, *({criteria.state.upper()} - {"", *STATES}))
    models = [*offered.gpu_models, *({criteria.gpu_model} - {"", *offered.gpu_models})]
    return JobFilters(
        period=tuple(
            Option(
                value=days_of(period)[0].isoformat(),
                label=say.period(period),
                selected=period == criteria.period,
            )
            for period in offered.periods
        ),
        project=tuple(
            Option(value=str(pk), label=name, selected=pk == criteria.project)
            for pk, name in offered.projects
        ),
        gpu_model=tuple(
            Option(value=name, label=name, selected=name == criteria.gpu_model) for name in models
        ),
        state=tuple(
            Option(value=name, label=job_badge(name).label, selected=name == criteria.state.upper())
            for name in states
        ),
        user=criteria.user,
        users=tuple(offered.users),
        q=criteria.q,
        active=criteria.anything,
    )


def job_row(rated_job: Job, zone: ZoneInfo) -> JobRow:
    """A job of a list, as shown."""
    row = rated_job.row
    finish = row.ended if row.ended is not None else row.seen_until
    duration = finish - row.started if row.started is not None and finish is not None else None
    return JobRow(
        record=row.record_id,
        job_id=row.job_id or str(row.record_id),
        name=row.name,
        user=row.user,
        project=rated_job.project,
        gpus=_gpus(row),
        started=say.moment(_at(row.started), zone) if row.started is not None else "",
        duration=say.duration(duration) if duration is not None else "",
        badge=job_badge(row.state),
        gpu_hours=say.hours(rated_job.gpu_seconds) if row.gpus else say.NOTHING,
        cost=say.money(rated_job.cost) if rated_job.cost else say.NOTHING,
        running=row.started is not None and row.ended is None,
        verdict=rated_job.verdict,
        by_total=rated_job.by_total and rated_job.cost is not None,
    )


def _gpus(row: RatedJob) -> str:
    return gpus_text(row.gpus, row.gpu_model, row.mig_profile, Fraction(row.share_num, row.share_den))


def gpus_text(gpus: int, model: str, mig_profile: str, share: Fraction) -> str:
    """`16 × H100`, `3 × 1g.5gb of A100`, `3 × 1/7 × A100`; "" for none."""
    if not gpus:
        return ""
    model = model or "GPU"
    if mig_profile:
        return f"{gpus} × {mig_profile} of {model}"
    return f"{gpus} × {model}" if share == 1 else f"{gpus} × {share} × {model}"


def _job_page(visit: Visit, record: int) -> JobPage:
    try:
        rated_job, pieces = reading.job(visit.tenant, record)
    except RatedJob.DoesNotExist as missing:
        raise Http404("no such job") from missing
    return JobPage(
        job=job_row(rated_job, visit.zone),
        zone=visit.tenant.timezone,
        facts=_facts(rated_job, visit.zone),
        pieces=tuple(_piece(piece, visit.zone) for piece in pieces),
        formulas=tuple(text for piece in pieces if (text := _formula(piece))),
    )


def _facts(rated_job: Job, zone: ZoneInfo) -> tuple[Fact, ...]:
    row = rated_job.row
    facts = {
        "Project": rated_job.project,
        "User": row.user,
        "Cluster": row.cluster,
        "Account": row.account,
        "Queue": row.queue,
        "QOS": row.qos,
        "Nodes": say.whole(row.nodes),
        "CPU cores": say.plain(Fraction(row.cpu_milli, 1000)),
        "Memory": _memory(row.memory_mib),
        **({"GPU memory": _memory(row.gpu_memory_mib)} if row.gpu_memory_mib else {}),
        **({"Slurm billing": say.whole(row.billing)} if row.billing else {}),
        "Submitted": _moment(row.submitted, zone),
        "Started": _moment(row.started, zone),
        "Ended": _moment(row.ended, zone)
        or (f"seen until {_moment(row.seen_until, zone)}" if row.seen_until else ""),
    }
    return tuple(Fact(label=label, value=value) for label, value in facts.items())


def _memory(mib: int) -> str:
    gib, rest = divmod(mib, 1024)
    return f"{say.whole(mib)} MiB" if rest or not gib else f"{say.whole(gib)} GiB"


def _piece(piece: reading.Piece, zone: ZoneInfo) -> Piece:
    resource, meter = METERS[Resource(piece.resource)]
    cost = piece.cost
    return Piece(
        since=say.second(piece.service_from, zone),
        until=say.second(piece.service_to, zone),
        project=piece.project,
        resource=resource,
        held=say.whole(piece.units),
        counted_in=say.counted_in(piece.share, meter),
        quantity=say.long_hours(piece.resource_seconds),
        unit=f"{meter.unit}s",
        unit_price=say.price(piece.tag.unit_price, piece.tag.currency) if piece.tag else "",
        amount=say.exact_money(cost) if cost else "",
        outcome=_outcome(piece),
        invoice=piece.invoice,
        paid_by=piece.paid_by if piece.verdict == Verdict.CHARGED else "",
        reason=REASONS.get(piece.verdict, ""),
        reversal=piece.units < 0,
    )


def _outcome(piece: reading.Piece) -> Literal["invoiced", "pending", "waived", "unpriced"]:
    if piece.verdict == Verdict.CHARGED:
        return "invoiced" if piece.invoice else "pending"
    return "waived" if piece.verdict == Verdict.WAIVED else "unpriced"


def _formula(piece: reading.Piece) -> str:
    if piece.tag is None or (cost := piece.cost) is None:
        return ""
    _, meter = METERS[Resource(piece.resource)]
    quantity = say.held(piece.units, piece.share, meter)
    unit_price = say.price(piece.tag.unit_price, piece.tag.currency)
    equals, amount = (
        ("", say.exact_money(cost))
        if say.exact_money(cost).startswith("≈")
        else ("= ", say.exact_money(cost))
    )
    return f"{quantity} ÷ 3,600 × {unit_price} {equals}{amount}"


def _moment(second: int | None, zone: ZoneInfo) -> str:
    return "" if second is None else say.moment(_at(second), zone)


def _at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
