"""What each model that is billed by tokens earned in a month, and what serving it cost: the operator's page."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import Http404, HttpRequest, HttpResponse

from billing.reports import served_models
from billing.rules.period import parse_month
from portal.web.access_decorators import answer, operator_page
from portal.web.page_frame import PageFrame


@operator_page("reports")
def operator_models(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    now = datetime.now(UTC)
    month = _month(request.GET.get("month", ""), now)
    page = {"month": f"{month[0]:04d}-{month[1]:02d}", "models": served_models.of_month(month)}
    return answer(request, frame, page, whole="operator/models.html")


def _month(text: str, now: datetime) -> tuple[int, int]:
    """The month in the address; this month without one."""
    if not text:
        return now.year, now.month
    try:
        year, number = parse_month(text)
    except ValueError as error:
        raise Http404 from error
    if not 2000 <= year <= now.year + 1:
        raise Http404
    return year, number
