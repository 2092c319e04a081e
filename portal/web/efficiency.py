"""A tenant's GPU efficiency: what it held, how much of that was used, and the jobs behind what was not."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.urls import reverse

from billing.reports.efficiency import Efficiency, load
from billing.reports.reporting import of_tenant
from billing.reports.shapes import By, Report
from billing.reports.waste import Kind, Waste
from portal.core.tenants.access import Action
from portal.web import waste
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.reports import PODS_IN_CSV, Selection, csv_answer, read_selection, report_page
from portal.web.waste_jobs import finding_page, job_rows, read_kind

AGAIN = "every 2s"
"""How often a page that waits for a worker asks whether it is done."""


@tenant_page(Action.READ_ALL, area="efficiency")
def efficiency(request: TenantRequest) -> HttpResponse:
    selection = _selection(request)
    figures = None if selection.error else _load(request, selection, by=selection.by)
    slug = request.tenant.slug
    page = report_page(
        selection,
        offered=tuple(by for by in By if by is not By.TENANT),
        make=(lambda: figures.report(selection.by, top_jobs=bool(selection.top_jobs))) if figures else None,
        more=(lambda report: _of_use(figures, report, selection, slug)) if figures else None,
        address=reverse("efficiency", args=[slug]),
        csv=reverse("efficiency_csv", args=[slug]),
    )
    return _answer(request, page, selection, figures, whole="tenant/efficiency.html")


@tenant_page(Action.READ_ALL, area="efficiency")
def efficiency_csv(request: TenantRequest) -> HttpResponse:
    """Computed from the runs, however many: who downloads a file waits for it."""
    selection = _selection(request)
    if selection.error:
        raise Http404(selection.error)
    report = of_tenant(
        request.tenant,
        since=selection.since,
        until=selection.until,
        by=selection.by,
        limit=PODS_IN_CSV,
        top_jobs=selection.top_jobs,
    )
    return csv_answer(report, f"{request.tenant.slug}-{selection.by.value}", selection)


@tenant_page(Action.READ_ALL, area="efficiency")
def efficiency_waste(request: TenantRequest, finding: str) -> HttpResponse:
    chosen, selection = read_kind(finding), _selection(request)
    if selection.error:
        raise Http404(selection.error)
    figures, slug = _load(request, selection, kind=chosen), request.tenant.slug
    unused = figures.waste(chosen) if figures else Waste(selection.since, selection.until, [], {}, {})
    page = finding_page(chosen, selection, unused, job_rows(unused, own=slug))
    page["back"] = reverse("efficiency", args=[slug]) + selection.query()
    return _answer(request, page, selection, figures, whole="tenant/waste.html")


def _selection(request: TenantRequest) -> Selection:
    selection = read_selection(request.GET, request.zone, request.moment, by=By.PROJECT)
    if selection.by is By.TENANT:
        raise Http404("a tenant's page tells of one")
    return selection


def _load(
    request: TenantRequest, selection: Selection, *, by: By | None = None, kind: Kind | None = None
) -> Efficiency | None:
    return load(
        request.tenant,
        since=selection.since,
        until=selection.until,
        moment=request.moment,
        by=by,
        top_jobs=bool(selection.top_jobs),
        kind=kind,
        may_request=getattr(request, "support_view", None) is None,
    )


def _of_use(figures: Efficiency, report: Report, selection: Selection, slug: str) -> dict[str, object]:
    """What is shown of a tenant alone: where what it held went, and what was not used."""
    unused, query = figures.waste(), selection.query()
    return {
        "findings": waste.finding_rows(
            unused, lambda kind: reverse("efficiency_waste", args=[slug, kind]) + query
        ),
        "parts": waste.allocated_parts(report, unused),
    }


def _answer(
    request: TenantRequest,
    page: dict[str, object],
    selection: Selection,
    figures: Efficiency | None,
    *,
    whole: str,
) -> HttpResponse:
    """The page, which asks whether its figures are there while a worker computes them, and then loads again."""
    is_waiting = not selection.error and (figures is None or figures.is_pending)
    page |= {
        "is_computed": figures is not None or bool(selection.error),
        "as_of": figures.as_of if figures and figures.is_kept else None,
        "zone": request.zone,
        "here": request.get_full_path(),
        "again": AGAIN if is_waiting else "",
    }
    response = answer(request, request.frame, page, whole=whole, part="tenant/_as_of.html")
    if not is_waiting:
        response["HX-Refresh"] = "true"  # heeded by the question alone
    return response
