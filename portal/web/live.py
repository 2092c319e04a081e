"""What a tenant's jobs hold and accrue right now, and what waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse

from billing.models import Verdict
from billing.queries import live as reading
from billing.queries.jobs import Cursor
from billing.queries.live import Live, OpenJob
from clusters.usage import Mark
from portal.core.tenants.access import Action
from portal.web import format as say
from portal.web.access_decorators import Visit, answer, tenant_page
from portal.web.jobs import cursor_of, gpus_text, job_row
from portal.web.shapes import LivePage, LiveRow, ReadThrough, Tile

LATE = timedelta(hours=2)  # that a cluster may go unread before the page says so aloud
NO_BREAK = "\N{NO-BREAK SPACE}"


@tenant_page(Action.READ, area="live")
def live(request: HttpRequest, visit: Visit) -> HttpResponse:
    page = _page(visit, request.GET)
    return answer(request, visit.shell, page, whole="live/live.html", part="live/_now.html")


def _page(visit: Visit, query: QueryDict) -> LivePage:
    """A cursor that is none begins at the top, as without one."""
    after = {name: cursor_of(query.get(name, "")) for name in ("running", "waiting")}
    snapshot = reading.live(
        visit.tenant,
        visit.marks,
        moment=visit.moment,
        today=visit.today,
        runs_after=after["running"],
        waits_after=after["waiting"],
    )
    through = {mark.cluster: mark.complete_through for mark in visit.marks}
    anything = (
        snapshot.running or snapshot.waiting or snapshot.unseen or (snapshot.today and snapshot.today.amount)
    )
    return LivePage(
        zone=visit.tenant.timezone,
        href=_href(visit, after),
        moment=say.second(visit.moment, visit.zone),
        summary=f"{say.counted(snapshot.running, 'job')} running, {snapshot.waiting} waiting, {_rate(snapshot)}.",
        marks=tuple(_read_through(mark, visit) for mark in visit.marks),
        unseen=say.counted(snapshot.unseen, "job") if snapshot.unseen else "",
        tiles=_tiles(snapshot) if anything else (),
        running=tuple(_row(row, visit, through.get(row.job.row.cluster)) for row in snapshot.runs),
        more_running=_href(visit, after | {"running": snapshot.more_runs}) if snapshot.more_runs else "",
        waiting=tuple(_row(row, visit, through.get(row.job.row.cluster)) for row in snapshot.waits),
        more_waiting=_href(visit, after | {"waiting": snapshot.more_waits}) if snapshot.more_waits else "",
        first=not any(after.values()),
    )


def _href(visit: Visit, after: dict[str, Cursor | None]) -> str:
    cursors = {name: f"{cursor.shown_at}-{cursor.record_id}" for name, cursor in after.items() if cursor}
    return reverse("live", args=[visit.tenant.slug]) + (f"?{urlencode(cursors)}" if cursors else "")


def _read_through(mark: Mark, visit: Visit) -> ReadThrough:
    at = mark.complete_through
    return ReadThrough(
        cluster=mark.cluster,
        through=say.moment(at, visit.zone) if at else "",
        age=say.age(at, now=visit.moment) if at else "",
        late=at is None or visit.moment - at > LATE,
    )


def _tiles(snapshot: Live) -> tuple[Tile, ...]:
    gpus = sum((allocation.gpus * allocation.share for allocation in snapshot.held), Fraction(0))
    models = " · ".join(
        gpus_text(allocation.gpus, allocation.gpu_model, allocation.mig_profile, allocation.share)
        for allocation in snapshot.held
    )
    today = say.money(snapshot.today) if snapshot.today else say.NOTHING
    return (
        Tile(
            label="Running",
            value=say.counted(snapshot.running, "job"),
            note=f"{say.whole(snapshot.waiting)} waiting",
        ),
        Tile(label="GPUs in use", value=_gpus(gpus), note=models or "none"),
        Tile(label="Cost per hour", value=say.sums(snapshot.per_hour), note=_note(snapshot)),
        Tile(
            label="Spent today",
            value=today,
            note="since midnight; what runs on counts hourly"
            + (", at the first unit’s prices" if snapshot.by_totals else ""),
        ),
    )


def _gpus(count: Fraction) -> str:
    """`46`, or two decimals where slices make no whole number of GPUs."""
    return say.whole(count.numerator) if count.denominator == 1 else say.hours(count * 3600)


def _note(snapshot: Live) -> str:
    if snapshot.unpriced:
        return f"without {say.counted(snapshot.unpriced, 'job')} that no price covers"
    prices = "the first unit’s prices" if snapshot.by_totals else "today’s prices"
    return f"of all that runs, at {prices}" if snapshot.per_hour else "nothing accrues"


def _rate(snapshot: Live) -> str:
    return f"{say.sums(snapshot.per_hour)} per hour" if snapshot.per_hour else "nothing accrues"


def _row(open_job: OpenJob, visit: Visit, through: datetime | None) -> LiveRow:
    row = open_job.job.row
    since = row.started if row.started is not None else row.submitted
    until = open_job.until if row.started is not None else int((through or visit.moment).timestamp())
    limit_at = row.started + open_job.time_limit if row.started is not None and open_job.time_limit else None
    gpus = gpus_text(
        open_job.holds.gpus,
        open_job.holds.gpu_model,
        open_job.holds.mig_profile,
        Fraction(*open_job.holds.gpu_share),
    )
    holds, *shape = [text for text in (gpus, *_rest(open_job)) if text] or [open_job.requested or say.NOTHING]
    per_hour, at_limit, so_far = open_job.per_hour, open_job.at_limit, open_job.so_far
    return LiveRow(
        job=replace(job_row(open_job.job, visit.zone), cost=say.money(so_far) if so_far else say.NOTHING),
        name=row.name if row.name != row.job_id else "",
        cluster=row.cluster,
        queue=" · ".join(name for name in (row.queue, row.qos) if name),
        holds=holds,
        shape=" · ".join(shape),
        since=_moment(since, visit),
        lasted=say.duration(max(0, until - since)) if since is not None and until is not None else "",
        seen_until=_moment(row.seen_until, visit),
        limit=say.duration(open_job.time_limit) if open_job.time_limit else "",
        limit_at=_moment(limit_at, visit),
        over=limit_at is not None and limit_at < visit.moment.timestamp(),
        per_hour=say.money(per_hour) if per_hour else "",
        at_limit=say.money(at_limit) if at_limit else "",
        why=_why(open_job),
        unseen=open_job.unseen,
    )


def _rest(open_job: OpenJob) -> list[str]:
    holds, nodes = open_job.holds, open_job.job.row.nodes
    cores = Fraction(holds.cpu_milli, 1000)
    return [
        f"{_number(cores)}{NO_BREAK}{'core' if cores == 1 else 'cores'}" if cores else "",
        f"{_number(Fraction(holds.memory_mib, 1024))}{NO_BREAK}GiB" if holds.memory_mib else "",
        say.counted(nodes, "node").replace(" ", NO_BREAK) if nodes > 1 else "",
    ]


def _number(value: Fraction) -> str:
    return say.whole(value.numerator) if value.denominator == 1 else say.plain(value)


def _why(open_job: OpenJob) -> str:
    """Why there is no cost per hour; "" where there is one."""
    if open_job.unseen:
        return "not seen lately"
    if open_job.verdict == Verdict.UNPRICED:
        return "no price covers it"
    if open_job.verdict == Verdict.WAIVED:
        return "not charged by this plan"
    if open_job.verdict is None:
        return "known once it runs" if open_job.job.row.started is None else "nothing accrues to you"
    return ""


def _moment(second: int | None, visit: Visit) -> str:
    return "" if second is None else say.moment(datetime.fromtimestamp(second, UTC), visit.zone)
