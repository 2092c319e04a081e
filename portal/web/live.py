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


def _page(visit: Visit, asked: QueryDict) -> LivePage:
    """A cursor that is none begins at the top, as without one."""
    after = {name: cursor_of(asked.get(name, "")) for name in ("running", "waiting")}
    found = reading.live(
        visit.tenant,
        visit.marks,
        moment=visit.moment,
        today=visit.today,
        runs_after=after["running"],
        waits_after=after["waiting"],
    )
    through = {mark.cluster: mark.complete_through for mark in visit.marks}
    anything = found.running or found.waiting or found.unseen or (found.today and found.today.amount)
    return LivePage(
        zone=visit.tenant.timezone,
        href=_href(visit, after),
        moment=say.second(visit.moment, visit.zone),
        summary=f"{say.counted(found.running, 'job')} running, {found.waiting} waiting, {_rate(found)}.",
        marks=tuple(_read_through(mark, visit) for mark in visit.marks),
        unseen=say.counted(found.unseen, "job") if found.unseen else "",
        tiles=_tiles(found) if anything else (),
        running=tuple(_row(row, visit, through.get(row.job.row.cluster)) for row in found.runs),
        more_running=_href(visit, after | {"running": found.more_runs}) if found.more_runs else "",
        waiting=tuple(_row(row, visit, through.get(row.job.row.cluster)) for row in found.waits),
        more_waiting=_href(visit, after | {"waiting": found.more_waits}) if found.more_waits else "",
        first=not any(after.values()),
    )


def _href(visit: Visit, after: dict[str, Cursor | None]) -> str:
    kept = {name: f"{cursor.shown_at}-{cursor.record_id}" for name, cursor in after.items() if cursor}
    return reverse("live", args=[visit.tenant.slug]) + (f"?{urlencode(kept)}" if kept else "")


def _read_through(mark: Mark, visit: Visit) -> ReadThrough:
    at = mark.complete_through
    return ReadThrough(
        cluster=mark.cluster,
        through=say.moment(at, visit.zone) if at else "",
        age=say.age(at, now=visit.moment) if at else "",
        late=at is None or visit.moment - at > LATE,
    )


def _tiles(found: Live) -> tuple[Tile, ...]:
    gpus = sum((held.gpus * held.share for held in found.held), Fraction(0))
    models = " · ".join(
        gpus_text(held.gpus, held.gpu_model, held.mig_profile, held.share) for held in found.held
    )
    today = say.money(found.today) if found.today else say.NOTHING
    return (
        Tile(
            label="Running",
            value=say.counted(found.running, "job"),
            note=f"{say.whole(found.waiting)} waiting",
        ),
        Tile(label="GPUs in use", value=_gpus(gpus), note=models or "none"),
        Tile(label="Cost per hour", value=say.sums(found.per_hour), note=_note(found)),
        Tile(
            label="Spent today",
            value=today,
            note="since midnight; what runs on counts hourly"
            + (", at the first unit’s prices" if found.by_totals else ""),
        ),
    )


def _gpus(count: Fraction) -> str:
    """`46`, or two decimals where slices make no whole number of GPUs."""
    return say.whole(count.numerator) if count.denominator == 1 else say.hours(count * 3600)


def _note(found: Live) -> str:
    if found.unpriced:
        return f"without {say.counted(found.unpriced, 'job')} that no price covers"
    prices = "the first unit’s prices" if found.by_totals else "today’s prices"
    return f"of all that runs, at {prices}" if found.per_hour else "nothing accrues"


def _rate(found: Live) -> str:
    return f"{say.sums(found.per_hour)} per hour" if found.per_hour else "nothing accrues"


def _row(found: OpenJob, visit: Visit, through: datetime | None) -> LiveRow:
    row = found.job.row
    since = row.started if row.started is not None else row.submitted
    until = found.until if row.started is not None else int((through or visit.moment).timestamp())
    limit_at = row.started + found.time_limit if row.started is not None and found.time_limit else None
    gpus = gpus_text(
        found.holds.gpus, found.holds.gpu_model, found.holds.mig_profile, Fraction(*found.holds.gpu_share)
    )
    holds, *shape = [text for text in (gpus, *_rest(found)) if text] or [found.requested or say.NOTHING]
    per_hour, at_limit, so_far = found.per_hour, found.at_limit, found.so_far
    return LiveRow(
        job=replace(job_row(found.job, visit.zone), cost=say.money(so_far) if so_far else say.NOTHING),
        name=row.name if row.name != row.job_id else "",
        cluster=row.cluster,
        queue=" · ".join(name for name in (row.queue, row.qos) if name),
        holds=holds,
        shape=" · ".join(shape),
        since=_moment(since, visit),
        lasted=say.duration(max(0, until - since)) if since is not None and until is not None else "",
        seen_until=_moment(row.seen_until, visit),
        limit=say.duration(found.time_limit) if found.time_limit else "",
        limit_at=_moment(limit_at, visit),
        over=limit_at is not None and limit_at < visit.moment.timestamp(),
        per_hour=say.money(per_hour) if per_hour else "",
        at_limit=say.money(at_limit) if at_limit else "",
        why=_why(found),
        unseen=found.unseen,
    )


def _rest(found: OpenJob) -> list[str]:
    holds, nodes = found.holds, found.job.row.nodes
    cores = Fraction(holds.cpu_milli, 1000)
    return [
        f"{_number(cores)}{NO_BREAK}{'core' if cores == 1 else 'cores'}" if cores else "",
        f"{_number(Fraction(holds.memory_mib, 1024))}{NO_BREAK}GiB" if holds.memory_mib else "",
        say.counted(nodes, "node").replace(" ", NO_BREAK) if nodes > 1 else "",
    ]


def _number(value: Fraction) -> str:
    return say.whole(value.numerator) if value.denominator == 1 else say.plain(value)


def _why(found: OpenJob) -> str:
    """Why there is no cost per hour; "" where there is one."""
    if found.unseen:
        return "not seen lately"
    if found.verdict == Verdict.UNPRICED:
        return "no price covers it"
    if found.verdict == Verdict.WAIVED:
        return "not charged by this plan"
    if found.verdict is None:
        return "known once it runs" if found.job.row.started is None else "nothing accrues to you"
    return ""


def _moment(second: int | None, visit: Visit) -> str:
    return "" if second is None else say.moment(datetime.fromtimestamp(second, UTC), visit.zone)
