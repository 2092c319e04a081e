"""Months as other systems take them, to be downloaded: a tenant's own charges, or those of all tenants."""

from __future__ import annotations

from datetime import UTC, datetime
from tempfile import SpooledTemporaryFile

from django.http import FileResponse, Http404, HttpRequest, HttpResponseBase

from billing.reports import focus, focus_files
from billing.rules.errors import RuleError
from billing.rules.period import parse_month
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.web.access_decorators import ScopedStream, TenantRequest, operator_page, tenant_page
from portal.web.page_frame import PageFrame

IN_MEMORY = 1 << 20  # bytes of a file, before it goes to disk


@tenant_page(Action.READ_INVOICES, area="invoices")
def focus_export(request: TenantRequest) -> HttpResponseBase:
    month = _month(request)
    dataset = focus.make_dataset(tenants=[request.tenant], month=month, moment=request.moment, own=True)
    name = focus_files.file_name(dataset, of=request.tenant.slug)
    return ScopedStream(
        request.tenant,
        focus_files.as_csv(dataset.charges),
        content_type="text/csv; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


@operator_page("reports")
def operator_focus_export(request: HttpRequest, frame: PageFrame) -> HttpResponseBase:
    """Read whole before it is sent: a slow reader holds no transaction."""
    del frame
    tenants = list(Tenant.objects.order_by("slug"))
    dataset = focus.make_dataset(tenants=tenants, month=_month(request), moment=datetime.now(UTC))
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the answer
    for piece in focus_files.as_csv(dataset.charges):
        file.write(piece)
    file.seek(0)
    name = focus_files.file_name(dataset, of="all")
    return FileResponse(file, as_attachment=True, filename=name, content_type="text/csv; charset=utf-8")


def _month(request: HttpRequest) -> tuple[int, int]:
    try:
        return parse_month(request.GET.get("period", ""))
    except RuleError as error:
        raise Http404("no such month") from error
