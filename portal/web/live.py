"""What a tenant's jobs hold and accrue right now, and what waits."""

from __future__ import annotations

from fractions import Fraction
from urllib.parse import urlencode

from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from billing.queries import live as reading
from billing.queries.live import Live, OpenJob
from billing.rules.formatting import localized
from clusters.freshness import LATE
from portal.core.tenants.access import Action
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.tiles import Tile

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
        "summary": _("{jobs} running, {waiting} waiting, {rate}.").format(
            jobs=say.counted(snapshot.running, "job"), waiting=snapshot.waiting, rate=_rate(snapshot)
        ),
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
            label=_("Running"),
            value=say.counted(snapshot.running, "job"),
            note=_("{count} waiting").format(count=say.whole(snapshot.waiting)),
        ),
        Tile(label=_("GPUs in use"), value=say.gpu_count(gpus), note=models or _("none")),
        Tile(label=_("Cost per hour"), value=say.sums(snapshot.per_hour), note=_note(snapshot)),
        Tile(
            label=_("Spent today"),
            value=today,
            note=_("since midnight; what runs on counts hourly, at the first unit’s prices")
            if snapshot.by_totals
            else _("since midnight; what runs on counts hourly"),
        ),
    )


def _note(snapshot: Live) -> str:
    if snapshot.unpriced:
        return _("without {jobs} that no price covers").format(jobs=say.counted(snapshot.unpriced, "job"))
    if not snapshot.per_hour:
        return _("nothing accrues")
    if snapshot.by_totals:
        return _("of all that runs, at the first unit’s prices")
    return _("of all that runs, at today’s prices")


def _rate(snapshot: Live) -> str:
    if not snapshot.per_hour:
        return _("nothing accrues")
    return _("{amount} per hour").format(amount=say.sums(snapshot.per_hour))


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
        f"{_number(cores)}{NO_BREAK}{ngettext('core', 'cores', 1 if cores == 1 else 2)}" if cores else "",
        f"{_number(Fraction(holds.memory_mib, 1024))}{NO_BREAK}GiB" if holds.memory_mib else "",
        say.counted(nodes, "node").replace(" ", NO_BREAK) if nodes > 1 else "",
    ]


def _number(value: Fraction) -> str:
    return say.whole(value.numerator) if value.denominator == 1 else localized(say.plain(value))
