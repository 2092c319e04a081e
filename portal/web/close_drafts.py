"""Drafts of a close: each document of a tenant as it will look, before it has a number."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from billing.documents import pdf as pdfs
from billing.documents.typesetting import TypesettingError
from billing.models import Preview, PreviewKind
from billing.rules.period import parse_month
from portal.core.tenants.models import Tenant
from portal.sentences import sentence
from portal.web import previews
from portal.web.access_decorators import answer, operator_page
from portal.web.closing import month_name
from portal.web.draft_documents import DraftDocuments
from portal.web.page_frame import PageFrame
from portal.web.previews import PreviewError


@operator_page("close")
def drafts(request: HttpRequest, frame: PageFrame, month: str, tenant: str) -> HttpResponse:
    """Requests them: whoever comes here sees them as they are now."""
    del frame
    now = _now()
    _check_month(month, now)
    get_object_or_404(Tenant, slug=tenant)
    inputs = {"month": month, "tenant": tenant}
    try:
        row = previews.request_preview(PreviewKind.DOCUMENTS, inputs=inputs, by=str(request.user), moment=now)
    except PreviewError as refusal:
        messages.error(request, sentence(refusal))
        return redirect(f"{reverse('operator_close')}?{urlencode({'month': month})}")
    return redirect("operator_draft_documents", month, tenant, row.pk)


@operator_page("close")
def draft_documents(
    request: HttpRequest, frame: PageFrame, month: str, tenant: str, preview: int
) -> HttpResponse:
    now = _now()
    _check_month(month, now)
    tenant_row = get_object_or_404(Tenant, slug=tenant)
    row = _find(preview, month, tenant)
    if row is None:
        return redirect("operator_drafts", month, tenant)
    result = previews.result_of(row, DraftDocuments)
    page = {
        "tenant": tenant_row,
        "month": month,
        "name": month_name(month),
        "preview": row,
        "progress": previews.progress_text(row, moment=now),
        "refresh": "" if row.ended_at else previews.REFRESH,
        "reason": result.reason if result else "",
        "drafts": [draft.page for draft in result.drafts] if result else [],
    }
    return answer(request, frame, page, whole="operator/drafts.html", part="operator/_drafts.html")


@operator_page("close")
def draft_pdf(
    request: HttpRequest, frame: PageFrame, month: str, tenant: str, preview: int, place: int
) -> HttpResponse:
    """The invoice's own template, marked as a draft on each page; 404 where there is no such document."""
    del request, frame
    row = _find(preview, month, tenant)
    result = previews.result_of(row, DraftDocuments) if row else None
    if result is None or not 1 <= place <= len(result.drafts):
        raise Http404("no such draft")
    try:
        content = pdfs.render(result.drafts[place - 1].document)
    except TypesettingError as error:
        return HttpResponse(sentence(error), status=503, content_type="text/plain; charset=utf-8")
    name = f"draft-{month}-{tenant}.pdf"
    headers = {"Content-Disposition": f'inline; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(content, content_type="application/pdf", headers=headers)


def _find(preview: int, month: str, tenant: str) -> Preview | None:
    return previews.find_preview(PreviewKind.DOCUMENTS, preview, month=month, tenant=tenant)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _check_month(month: str, now: datetime) -> None:
    try:
        year, _number = parse_month(month)
    except ValueError as error:
        raise Http404 from error
    if not 2000 <= year <= now.year + 1:
        raise Http404("no such month")
