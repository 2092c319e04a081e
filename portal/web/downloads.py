"""What is downloaded of an invoice: its PDF, its e-invoice, the jobs behind it, and its evidence."""

from __future__ import annotations

import structlog
from django.http import Http404, HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _

from billing.documents import evidence as evidence_of
from billing.models import Invoice, InvoiceLine
from billing.queries import invoices as reading
from billing.queries import line_usage
from portal.core.tenants.access import Action
from portal.sentences import sentence
from portal.web.access_decorators import ScopedStream, TenantRequest, answer, tenant_page

log = structlog.get_logger("portal.web")


@tenant_page(Action.READ_INVOICES, area="invoices")
def pdf(request: TenantRequest, number: str) -> HttpResponse:
    content = reading.document(_invoice(request, number))
    if content is None:
        why = _("The PDF of {number} is not ready: it has not been rendered yet.").format(number=number)
        return _not_ready(request, number, why)
    return HttpResponse(content, content_type="application/pdf", headers=_file(f"{number}.pdf", "inline"))


@tenant_page(Action.READ_INVOICES, area="invoices")
def csv(request: TenantRequest, number: str) -> HttpResponseBase:
    invoice = _invoice(request, number)
    lines = list(invoice.lines.select_related("service_period").order_by("position"))
    return _table(request, invoice, lines, f"{number}.csv")


@tenant_page(Action.READ_INVOICES, area="invoices")
def evidence(request: TenantRequest, number: str) -> HttpResponseBase:
    """All that it takes to compute the document again, and the program that does; it is whole before it is sent."""
    invoice = _invoice(request, number)
    try:
        pieces = evidence_of.bundle(invoice)
    except evidence_of.NotReadyError as refusal:
        return _not_ready(request, number, sentence(refusal))
    except evidence_of.EvidenceError as refusal:
        log.error("evidence differs from what was signed", invoice=number)
        return _not_ready(request, number, sentence(refusal), later=False)
    return ScopedStream(
        request.tenant,
        pieces,
        content_type="application/zip",
        headers=_file(f"{number}-evidence.zip", "attachment"),
    )


@tenant_page(Action.READ_INVOICES, area="invoices")
def xml(request: TenantRequest, number: str) -> HttpResponse:
    """The e-invoice as it is in the PDF; 404 for a document that EN 16931 cannot state, or is not rendered yet."""
    content = reading.einvoice(_invoice(request, number))
    if content is None:
        raise Http404("no e-invoice")
    return HttpResponse(content, content_type="application/xml", headers=_file(f"{number}.xml", "attachment"))


@tenant_page(Action.READ_INVOICES, area="invoices")
def line_csv(request: TenantRequest, number: str, position: int) -> HttpResponseBase:
    line = get_line(request, number, position)
    return _table(request, line.invoice, [line], f"{number}-{position}.csv")


def _not_ready(request: TenantRequest, number: str, why: str, *, later: bool = True) -> HttpResponse:
    """What a worker makes a moment after the invoice was issued: whoever waits is led there `later`."""
    page = {"number": number, "why": why, "later": later}
    response = answer(request, request.frame, page, whole="tenant/not_ready.html")
    response.status_code = 409
    if later:
        response.headers["Retry-After"] = response.headers["Refresh"] = "10"
    return response


def _invoice(request: TenantRequest, number: str) -> Invoice:
    try:
        return reading.get(request.tenant, number)
    except Invoice.DoesNotExist as missing:
        raise Http404("no such invoice") from missing


def get_line(request: TenantRequest, number: str, position: int) -> InvoiceLine:
    try:
        return reading.line(request.tenant, number, position)
    except InvoiceLine.DoesNotExist as missing:
        raise Http404("no such line") from missing


def _table(request: TenantRequest, invoice: Invoice, lines: list[InvoiceLine], name: str) -> HttpResponseBase:
    pieces = line_usage.as_csv(invoice, lines)
    return ScopedStream(
        request.tenant, pieces, content_type="text/csv; charset=utf-8", headers=_file(name, "attachment")
    )


def _file(name: str, kind: str) -> dict[str, str]:
    return {"Content-Disposition": f'{kind}; filename="{name}"', "X-Content-Type-Options": "nosniff"}
