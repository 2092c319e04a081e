"""The operator's page of sealed months: what is sealed, what may be, what stands in the way, and what is asked for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from fractions import Fraction
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.models import SealKind, SealRun
from billing.queries import sealed_months as reading
from billing.queries.sealed_months import MonthRow
from billing.rules.period import parse_month
from billing.sealed_months import seal_runs
from billing.sealed_months.errors import SealError
from portal.core.audit import acting_as
from portal.core.tenants.access import Right
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.page_frame import PageFrame
from portal.web.seal_confirmation import READY, confirmation
from portal.web.templatetags.clustertab import moment

RUNS = 8  # that have ended
BADGES = {
    "damaged": Badge(label="Files damaged", tone="late"),
    "dropped": Badge(label="Dropped", tone="ok"),
    "sealed": Badge(label="Sealed", tone="ok"),
    "changed": Badge(label="Changed since", tone="wait"),
    "ready": Badge(label="Ready", tone="run"),
    "unproved": Badge(label="Not proved", tone="wait"),
    "blocked": Badge(label="Not yet", tone="muted"),
}
DOING = {
    SealKind.SEAL: "Sealing {month}",
    SealKind.UNSEAL: "Unsealing {month}",
    SealKind.CHECK: "Checking the files of {month}",
    SealKind.DROP: "Dropping the rows of {month}",
    SealKind.LOAD: "Loading the rows of {month}",
}


@operator_page("sealed_months", acts=Right.CLOSES)
def sealed_months(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    now = datetime.now(UTC).replace(microsecond=0)
    if request.method == "POST":
        return redirect(reverse("operator_sealed_months") + _act(request, now))
    waiting = list(SealRun.objects.unfinished().order_by("pk"))
    page: dict[str, object] = {
        "run": waiting[0].pk if waiting else "",
        "progress": _progress(waiting),
        "waiting": waiting[1:],
    }
    if request.headers.get("HX-Request") != "true":
        page |= _page(request, waiting, now)
    elif str(page["run"]) != request.GET.get("run"):
        return HttpResponse(
            status=204, headers={"HX-Refresh": "true"}
        )  # the list of months is another one now
    return answer(
        request, frame, page, whole="operator/sealed_months.html", part="operator/_seal_progress.html"
    )


def _act(request: HttpRequest, now: datetime) -> str:
    """The query of the page to go to: that which asks first, unless it has."""
    act, name, by = request.POST.get("act", ""), request.POST.get("month", ""), str(request.user)
    if act not in {*SealKind.values, READY}:
        raise Http404("no such act")
    month = None if act == READY else _month(name)
    if act != SealKind.CHECK and request.POST.get("confirmed") != "yes":
        return "?" + urlencode({"confirm": act} | ({"month": name} if month else {}))
    try:
        with acting_as(by):
            if month is None:
                count = len(seal_runs.request_ready(by=by, moment=now))
                text = _("Requested for {months}.").format(months=say.counted(count, "month"))
            else:
                seal_runs.request_run(
                    month=month,
                    kind=SealKind(act),
                    by=by,
                    moment=now,
                    all_processes_replaced=request.POST.get("replaced") == "yes",
                )
                text = _("Requested. It starts shortly.")
    except SealError as refusal:
        messages.error(request, sentence(refusal))
    else:
        messages.info(request, text)
    return ""


def _month(text: str) -> date:
    try:
        year, number = parse_month(text)
        return date(year, number, 1)
    except ValueError as error:
        raise Http404 from error


def _page(request: HttpRequest, waiting: list[SealRun], now: datetime) -> dict[str, object]:
    """What the page shows beside the progress, which is asked for anew while a worker is at it."""
    rows = reading.list_rows(moment=now, quiet_months=settings.CLUSTERTAB_SEAL_AFTER_MONTHS)
    ready = [row for row in rows if row.name == READY and row.month not in {run.month for run in waiting}]
    return {
        "directory": settings.CLUSTERTAB_SEALED_MONTHS,
        "at_night": settings.CLUSTERTAB_SEAL_AT_NIGHT,
        "quiet": say.counted(settings.CLUSTERTAB_SEAL_AFTER_MONTHS, "month"),
        "rows": [_row(row, {run.month: run for run in waiting}) for row in rows],
        "ready": len(ready),
        "confirmation": confirmation(
            act=request.GET.get("confirm", ""), name=request.GET.get("month", ""), rows=rows, ready=ready
        )
        if settings.CLUSTERTAB_SEALED_MONTHS is not None
        else None,
        "runs": [(run, _outcome(run)) for run in reading.ended_runs(RUNS)],
    }


def _row(row: MonthRow, waiting: dict[date, SealRun]) -> dict[str, object]:
    can_act = settings.CLUSTERTAB_SEALED_MONTHS is not None and row.month not in waiting
    return {
        "row": row,
        "key": f"{row.month:%Y-%m}",
        "name": say.month_name(row.month),
        "badge": BADGES[row.name],
        "sentences": [*row.damages, *_in_files(row), *(sentence(blocker) for blocker in row.blockers)],
        "size": say.size(row.bytes) if row.files else say.NOTHING,
        "a_job": f"{say.whole(round(Fraction(row.bytes, row.records)))} B"
        if row.files and row.records
        else say.NOTHING,
        "seals": can_act and row.name in {READY, "unproved"},
        "unseals": can_act and row.files > 0,
        "drops": can_act and row.name == "sealed",
        "loads": can_act and row.dropped_at is not None,
    }


def _in_files(row: MonthRow) -> list[str]:
    if not row.dropped_at:
        return []
    rows = [_("Its rows are in these files alone: keep them.")]
    return [*rows, _("Late records of it are in the database, as they are now.")] if row.has_late else rows


def _progress(waiting: list[SealRun]) -> str:
    """`Sealing March 2026 since 20 Nov 2026, 08:00.`"""
    if not waiting:
        return ""
    run = waiting[0]
    doing = _(DOING[SealKind(run.kind)]).format(month=say.month_name(run.month))
    if run.started_at is None:
        return _("{doing}: waiting for a worker.").format(doing=doing)
    return _("{doing} since {at}.").format(doing=doing, at=moment(run.started_at))


def _outcome(run: SealRun) -> Badge:
    return Badge(label=_("Failed"), tone="late") if run.error else Badge(label=_("Done"), tone="ok")
