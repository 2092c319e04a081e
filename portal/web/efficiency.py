"""A tenant's GPU efficiency: what it held, how much of that was used, and the jobs behind what was not."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.urls import reverse

from billing.reports.efficiency import Efficiency, load
from billing.reports.efficiency_snapshots import Waiting
from billing.reports.reporting import of_tenant
from billing.reports.shapes import By, Report
from billing.reports.waste import Kind, Waste
from portal.core.tenants.access import Action
from portal.web import waste
from portal.web.access_decorators import TenantRequest, tenant_page
from portal.web.reports import (
    PODS_IN_CSV,
    Selection,
    answer_as_of,
    csv_answer,
    read_selection,
    report_page,
)
from portal.web.waste_jobs import finding_page, job_rows, read_kind


@tenant_page(Action.READ_ALL, area="efficiency")
def efficiency(request: TenantRequest) -> HttpResponse:
    selection = _selection(request)
    loaded = None if selection.error else _load(request, selection, by=selection.by)
    figures = loaded if isinstance(loaded, Efficiency) else None
    slug = request.tenant.slug
    page = report_page(
        selection,
        offered=tuple(by for by in By if by is not By.TENANT),
        make=(lambda: figures.report(selection.by, top_jobs=bool(selection.top_jobs))) if figures else None,
        more=(lambda report: _of_use(figures, report, selection, slug)) if figures else None,
        address=reverse("efficiency", args=[slug]),
        csv=reverse("efficiency_csv", args=[slug]),
    )
    return answer_as_of(request, request.frame, page, selection, loaded, whole="tenant/efficiency.html")


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
    loaded, slug = _load(request, selection, kind=chosen), request.tenant.slug
    figures = loaded if isinstance(loaded, Efficiency) else None
    unused = figures.waste(chosen) if figures else Waste(selection.since, selection.until, [], {}, {})
    page = finding_page(chosen, selection, unused, job_rows(unused, own=slug))
    page["back"] = reverse("efficiency", args=[slug]) + selection.query()
    return answer_as_of(request, request.frame, page, selection, loaded, whole="tenant/waste.html")


def _selection(request: TenantRequest) -> Selection:
    selection = read_selection(request.GET, request.zone, request.moment, by=By.PROJECT)
    if selection.by is By.TENANT:
        raise Http404("a tenant's page tells of one")
    return selection


def _load(
    request: TenantRequest, selection: Selection, *, by: By | None = None, kind: Kind | None = None
) -> Efficiency | Waiting:
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
