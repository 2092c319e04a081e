"""Months as other systems take them, to be downloaded: a tenant's own charges, or the journal of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from tempfile import SpooledTemporaryFile

from django.conf import settings
from django.http import FileResponse, Http404, HttpRequest, HttpResponseBase

from billing.reports import focus, focus_files, journal
from billing.reports.journal import AccountsError
from billing.rules.errors import RuleError
from billing.rules.period import parse_month, shifted
from portal.core.tenants.access import Action
from portal.sentences import sentence
from portal.web.access_decorators import ScopedStream, TenantRequest, operator_page, tenant_page
from portal.web.page_frame import PageFrame

IN_MEMORY = 1 << 20  # bytes of a file, before it goes to disk


@tenant_page(Action.READ_INVOICES, area="invoices")
def focus_export(request: TenantRequest) -> HttpResponseBase:
    month = _month(request)
    dataset = focus.make_dataset(tenants=[request.tenant], month=month, moment=request.moment, own=True)
    focus.refuse_unreadable(request.tenant, month, dataset.openings)
    kind = _kind(request)
    name = focus_files.file_name(dataset, of=request.tenant.slug, extension=kind)
    return ScopedStream(
        request.tenant,
        focus_files.AS[kind](dataset.charges),
        content_type=focus_files.FORMATS[kind],
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


@operator_page("reports")
def ledger_export(request: HttpRequest, frame: PageFrame) -> HttpResponseBase:
    del frame
    month = _month(request)
    try:
        numbers = journal.numbers_of(settings.CLUSTERTAB_LEDGER_ACCOUNTS)
    except AccountsError as error:
        raise Http404(sentence(error)) from error
    found = journal.entries(since=date(*month, 1), until=date(*shifted(month, 1), 1))
    return _file(journal.as_csv(found, numbers), f"ledger-{month[0]}-{month[1]:02d}.csv")


def _file(pieces: Iterable[bytes], name: str) -> HttpResponseBase:
    """Read whole before it is sent: a slow reader holds no transaction."""
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the answer
    for piece in pieces:
        file.write(piece)
    file.seek(0)
    return FileResponse(file, as_attachment=True, filename=name, content_type="text/csv; charset=utf-8")


def _kind(request: HttpRequest) -> str:
    kind = request.GET.get("format", "csv")
    if kind not in focus_files.FORMATS:
        raise Http404("no such kind of file")
    return kind


def _month(request: HttpRequest) -> tuple[int, int]:
    try:
        return parse_month(request.GET.get("period", ""))
    except RuleError as error:
        raise Http404("no such month") from error
