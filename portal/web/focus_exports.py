"""Files with the charges of all tenants in a month: requested, watched while a worker writes them, and downloaded."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import FocusExport, FocusFormat
from billing.reports import focus_exports, focus_files
from billing.reports.focus_columns import Status
from billing.reports.focus_exports import FocusExportError
from billing.rules.errors import RuleError
from billing.rules.period import parse_month
from portal.core import replica
from portal.core.tenants.access import Right
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.page_frame import PageFrame

SHOWN = 20
WAITING = Badge(label=gettext_noop("Waiting"), tone="wait")
WRITING = Badge(label=gettext_noop("Writing"), tone="run")
READY = Badge(label=gettext_noop("Ready"), tone="ok")
PRELIMINARY = Badge(label=gettext_noop("Preliminary"), tone="wait")
FAILED = Badge(label=gettext_noop("Failed"), tone="late")


@operator_page("reports", acts=Right.READ)
def operator_focus_exports(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    now = datetime.now(UTC).replace(microsecond=0)
    if request.method == "POST":
        _request(request, now)
        return redirect("operator_focus_exports")
    exports = focus_exports.list_newest(SHOWN)
    current = next((row for row in reversed(exports) if row.ended_at is None), None)
    page = {
        "period": request.GET.get("period") or f"{_last_month(now):%Y-%m}",
        "formats": FocusFormat.choices,
        "current": current,
        "progress": _progress(current) if current else "",
        "rows": [(row, say.month_name(row.month), _badge(row), say.size(row.size)) for row in exports],
        "days": focus_exports.RETENTION.days,
        "refresh": "every 2s" if current else "",
    }
    return answer(
        request, frame, page, whole="operator/focus_exports.html", part="operator/_focus_exports.html"
    )


@operator_page("reports")
def operator_focus_file(request: HttpRequest, frame: PageFrame, *, export: int) -> HttpResponseBase:
    del frame
    row = FocusExport.objects.filter(pk=export).first()
    try:
        if row is None:
            raise FocusExportError("removed", days=focus_exports.RETENTION.days)
        moment = datetime.now(UTC).replace(microsecond=0)
        pieces = focus_exports.open_file(row, by=str(request.user), moment=moment)
    except FocusExportError as refusal:
        replica.ask_primary()
        messages.error(request, sentence(refusal))
        return redirect("operator_focus_exports")
    return StreamingHttpResponse(
        pieces,
        content_type=focus_files.FORMATS[row.format],
        headers={
            "Content-Disposition": f'attachment; filename="{row.name}"',
            "Content-Length": str(row.size),
            "X-Content-Type-Options": "nosniff",
        },
    )


def _request(request: HttpRequest, now: datetime) -> None:
    kind = request.POST.get("format", "")
    if kind not in FocusFormat.values:
        raise Http404("no such kind of file")
    try:
        month = date(*parse_month(request.POST.get("period", "")), 1)
        focus_exports.request_export(month=month, kind=FocusFormat(kind), by=str(request.user), moment=now)
        messages.info(request, _("Requested. It starts shortly."))
    except (FocusExportError, RuleError) as refusal:
        messages.error(request, sentence(refusal))


def _last_month(now: datetime) -> date:
    return now.date().replace(day=1) - timedelta(days=1)


def _progress(export: FocusExport) -> str:
    """`Writing March 2026: 100 of 1,000 tenants.`"""
    month = say.month_name(export.month)
    if export.started_at is None:
        return _("{month}: waiting for a worker.").format(month=month)
    return _("Writing {month}: {done} of {tenants}.").format(
        month=month, done=say.whole(export.done), tenants=say.counted(export.total, "tenant")
    )


def _badge(row: FocusExport) -> Badge:
    if row.error:
        return FAILED
    if row.ended_at is not None:
        return PRELIMINARY if row.status == Status.PRELIMINARY else READY
    return WRITING if row.started_at is not None else WAITING
