"""What a tenant's jobs hold and accrue right now, and what waits."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from urllib.parse import urlencode

from django.http import HttpResponse
from django.urls import reverse

from billing.queries import live as reading
from billing.queries.live import Live, OpenJob
from portal.core.tenants.access import Action
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.tiles import Tile

LATE = timedelta(hours=2)  # that a cluster may go unread before the page says so aloud
NO_BREAK = "\N{NO-BREAK SPACE}"


@tenant_page(Action.READ, area="live")
def live(request: TenantRequest) -> HttpResponse:
    """A cursor that is none begins at the top, as without one."""
    after = {name: request.GET.get(name, "") for name in ("running", "waiting")}
    snapshot = reading.live(
        request.tenant,
        request.marks,
        moment=request.moment,
        today=request.today,
        runs_after=after["running"],
        waits_after=after["waiting"],
    )
    anything = (
        snapshot.running or snapshot.waiting or snapshot.unseen or (snapshot.today and snapshot.today.amount)
    )
    page = {
        "href": _href(request, after),
        "summary": f"{say.counted(snapshot.running, 'job')} running, {snapshot.waiting} waiting, {_rate(snapshot)}.",
        "late": [
            mark
            for mark in request.marks
            if mark.complete_through is None or request.moment - mark.complete_through > LATE
        ],
        "unseen": snapshot.unseen,
        "tiles": _tiles(snapshot) if anything else (),
        "running": [(row, *_holds(row)) for row in snapshot.runs],
        "more_running": _href(request, after | {"running": snapshot.more_runs}) if snapshot.more_runs else "",
        "waiting": [(row, *_holds(row)) for row in snapshot.waits],
        "more_waiting": _href(request, after | {"waiting": snapshot.more_waits})
        if snapshot.more_waits
        else "",
        "first": snapshot.is_first,
        "now": int(request.moment.timestamp()),
    }
    return answer(request, request.frame, page, whole="live/live.html", part="live/_now.html")


def _href(request: TenantRequest, after: dict[str, str]) -> str:
    cursors = {name: cursor for name, cursor in after.items() if cursor}
    return reverse("live", args=[request.tenant.slug]) + (f"?{urlencode(cursors)}" if cursors else "")


def _tiles(snapshot: Live) -> tuple[Tile, ...]:
    gpus = sum((allocation.gpus * allocation.share for allocation in snapshot.running_gpus), Fraction(0))
    models = " · ".join(
        say.gpus(allocation.gpus, allocation.gpu_model, allocation.mig_profile, allocation.share)
        for allocation in snapshot.running_gpus
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


def _holds(open_job: OpenJob) -> tuple[str, str]:
    """What it holds first, and the rest of it."""
    holds = open_job.holds
    gpus = say.gpus(holds.gpus, holds.gpu_model, holds.mig_profile, Fraction(*holds.gpu_share))
    first, *rest = [text for text in (gpus, *_rest(open_job)) if text] or [open_job.requested or say.NOTHING]
    return first, " · ".join(rest)


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
