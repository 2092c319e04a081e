"""Drafts of a close: each document of a tenant as it will look, before it has a number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _

from billing.catalog import billing_periods
from billing.documents import pdf as pdfs
from billing.documents.typesetting import TypesettingError
from billing.invoicing import close_runs, draft_previews
from billing.invoicing.close_results import Outcome
from billing.invoicing.draft_previews import Drafts
from billing.models import Invoice
from billing.queries import invoices as reading
from billing.rules.period import parse_month
from portal.core.tenants.models import Tenant
from portal.sentences import sentence
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import INVOICE_BADGES
from portal.web.closing import month_name
from portal.web.invoice_document import Fact, InvoicePage, shown
from portal.web.page_frame import PageFrame

T = TypeVar("T")


@operator_page("close")
def drafts(request: HttpRequest, frame: PageFrame, month: str, tenant: str) -> HttpResponse:
    now = datetime.now(UTC).replace(microsecond=0)
    tenant_row = get_object_or_404(Tenant, slug=tenant)
    preview = _drafted(month, tenant_row, now, lambda row: _page(row, now))
    closed = preview.closed
    reason = " ".join(block.sentence for block in closed.blocks) or closed.reason
    if closed.outcome is Outcome.ALREADY:
        reason = _("{number} is already issued.").format(number=closed.number)
    page = {
        "tenant": tenant_row,
        "month": month,
        "name": month_name(month),
        "reason": " ".join(filter(None, (reason, closed.note))),
        "drafts": preview.documents,
    }
    return answer(request, frame, page, whole="operator/drafts.html")


@operator_page("close")
def draft_pdf(request: HttpRequest, frame: PageFrame, month: str, tenant: str, place: int) -> HttpResponse:
    """The invoice's own template, marked as a draft on each page; 404 where there is no such document."""
    del request, frame
    now = datetime.now(UTC).replace(microsecond=0)
    tenant_row = get_object_or_404(Tenant, slug=tenant)
    documents = _drafted(
        month, tenant_row, now, lambda row: draft_previews.load_document(row, moment=now)
    ).documents
    if not 1 <= place <= len(documents):
        raise Http404("no such draft")
    try:
        content = pdfs.render(documents[place - 1])
    except TypesettingError as error:
        return HttpResponse(sentence(error), status=503, content_type="text/plain; charset=utf-8")
    name = f"draft-{month}-{tenant}.pdf"
    headers = {"Content-Disposition": f'inline; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(content, content_type="application/pdf", headers=headers)


def _drafted(month: str, tenant: Tenant, now: datetime, read: Callable[[Invoice], T]) -> Drafts[T]:
    """With the options of the month's last preview."""
    try:
        year, number = parse_month(month)
    except ValueError as error:
        raise Http404 from error
    if not 2000 <= year <= now.year + 1:
        raise Http404("no such month")
    run = close_runs.get_newest_run(month)
    return draft_previews.read_drafts(
        tenant=tenant,
        year=year,
        month=number,
        moment=now,
        read=read,
        accept_incomplete=run.accept_incomplete if run else "",
    )


def _page(row: Invoice, now: datetime) -> InvoicePage:
    """Without its number, and without links that cannot be opened yet."""
    page = shown(reading.draft_detail(row.pk, on=billing_periods.day_of(now, row.period)))
    groups = tuple(
        replace(group, lines=tuple(replace(line, jobs="", credited_job=None) for line in group.lines))
        for group in page.groups
    )
    facts = tuple(Fact(label=other.label, value=other.number) for other in page.related)
    return replace(
        page,
        number=draft_previews.NUMBER,
        badge=INVOICE_BADGES["draft"],
        groups=groups,
        facts=(*page.facts, *facts),
        related=(),
        transfer=None,
        evidence="",
    )
