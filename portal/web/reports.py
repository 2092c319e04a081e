"""What GPUs were held for: the operator's report of a cluster, and a tenant's of its own use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.urls import reverse

from billing.reports.reporting import of_cluster, of_tenant
from billing.reports.shapes import By, Report
from billing.reports.table import as_csv
from clusters.models import Cluster
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_page
from portal.web.reporting import margin_of, nodes, nodes_of, shown, tiles, total
from portal.web.shapes import Option, PeriodChoice, ReportPage, Shell, Tile

UTC_ZONE = ZoneInfo("UTC")
LONGEST = 400  # days that a page reports at once
PODS = 25
PODS_IN_CSV = 10_000
NAMES = {
    By.TENANT: "Tenant",
    By.PROJECT: "Project",
    By.NAMESPACE: "Account",
    By.USER: "User",
    By.MODEL: "GPU model",
    By.POD: "Job",
}
TOO_LONG = f"A page reports {LONGEST} days at most: choose a shorter period, or ask report_cost."
NO_DAY = "Write both days as 2026-03-01, in the years 1971 to 8999."
BACKWARDS = "The period ends before it begins: choose a later last day."


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the address asks for: whole days of a zone, the last one included."""

    first: date
    last: date
    by: By
    zone: ZoneInfo
    today: date
    readable: bool = True  # False: a day that was typed is none, and the present month stands in its place

    @property
    def since(self) -> int:
        return _midnight(self.first, self.zone)

    @property
    def until(self) -> int:
        return _midnight(self.last + timedelta(days=1), self.zone)

    @property
    def error(self) -> str:
        if not self.readable:
            return NO_DAY
        if self.first > self.last:
            return BACKWARDS
        return TOO_LONG if self.last - self.first >= timedelta(days=LONGEST) else ""

    def query(self, **more: str) -> str:
        parameters = {"from": f"{self.first}", "through": f"{self.last}", "by": self.by.value, **more}
        return "?" + urlencode({name: value for name, value in parameters.items() if value})


@operator_page("reports")
def reports(request: HttpRequest, shell: Shell) -> HttpResponse:
    selection, clusters, cluster = _of_operator(request)
    page = _page(
        selection,
        offered=tuple(By),
        make=(lambda: _cluster_report(selection, cluster, PODS)) if cluster else None,
        margin=(lambda report: margin_of(report, cluster)) if cluster else None,
        address=reverse("operator_reports"),
        csv=reverse("operator_reports_csv"),
        cluster=tuple(Option(value=one.name, label=one.name, selected=one == cluster) for one in clusters),
    )
    return answer(request, shell, page, whole="operator/reports.html")


@operator_page("reports")
def reports_csv(request: HttpRequest, shell: Shell) -> HttpResponse:
    del shell
    selection, _, cluster = _of_operator(request)
    if cluster is None or selection.error:
        raise Http404(selection.error or "no cluster yet")
    return _csv(
        _cluster_report(selection, cluster, PODS_IN_CSV), f"{cluster.name}-{selection.by.value}", selection
    )


@tenant_page(Action.READ, area="efficiency")
def efficiency(request: TenantRequest) -> HttpResponse:
    selection = _of_tenant(request)
    slug = request.tenant.slug
    page = _page(
        selection,
        offered=tuple(by for by in By if by is not By.TENANT),
        make=lambda: _tenant_report(selection, request, PODS),
        address=reverse("efficiency", args=[slug]),
        csv=reverse("efficiency_csv", args=[slug]),
    )
    return answer(request, request.frame, page, whole="tenant/efficiency.html")


@tenant_page(Action.READ, area="efficiency")
def efficiency_csv(request: TenantRequest) -> HttpResponse:
    selection = _of_tenant(request)
    if selection.error:
        raise Http404(selection.error)
    return _csv(
        _tenant_report(selection, request, PODS_IN_CSV),
        f"{request.tenant.slug}-{selection.by.value}",
        selection,
    )


def _of_operator(request: HttpRequest) -> tuple[Asked, list[Cluster], Cluster | None]:
    clusters = list(Cluster.objects.order_by("name"))
    name = request.GET.get("cluster", "")
    chosen = next((one for one in clusters if one.name == name), None) if name else None
    if name and chosen is None:
        raise Http404("no such cluster")
    selection = _asked(request.GET, UTC_ZONE, datetime.now(UTC), by=By.TENANT)
    return selection, clusters, chosen or (clusters[0] if clusters else None)


def _of_tenant(request: TenantRequest) -> Asked:
    selection = _asked(request.GET, request.zone, request.moment, by=By.PROJECT)
    if selection.by is By.TENANT:
        raise Http404("a tenant's page tells of one")
    return selection


def _asked(query: QueryDict, zone: ZoneInfo, moment: datetime, *, by: By) -> Asked:
    """Without a period the present month. What is no group is no choice: 404. A day is typed, so it may be wrong."""
    today = moment.astimezone(zone).date()
    try:
        chosen = By(query.get("by") or by.value)
    except ValueError as unknown:
        raise Http404("no such choice") from unknown
    first = _day(query.get("from", ""), today.replace(day=1))
    last = _day(query.get("through", ""), today)
    return Asked(
        first=first or today.replace(day=1),
        last=last or today,
        by=chosen,
        zone=zone,
        today=today,
        readable=first is not None and last is not None,
    )


def _day(typed: str, otherwise: date) -> date | None:
    """None for what is no day, or none that a page reports."""
    try:
        day = date.fromisoformat(typed) if typed else otherwise
    except ValueError:
        return None
    return day if 1970 < day.year < 9000 else None


def _cluster_report(selection: Asked, cluster: Cluster, limit: int) -> Report:
    return of_cluster(cluster, since=selection.since, until=selection.until, by=selection.by, limit=limit)


def _tenant_report(selection: Asked, request: TenantRequest, limit: int) -> Report:
    return of_tenant(
        request.tenant, since=selection.since, until=selection.until, by=selection.by, limit=limit
    )


def _page(
    selection: Asked,
    *,
    offered: tuple[By, ...],
    make: Callable[[], Report] | None,
    margin: Callable[[Report], tuple[tuple[Tile, ...], str]] | None = None,
    address: str,
    csv: str,
    cluster: tuple[Option, ...] = (),
) -> ReportPage:
    report = make() if make is not None and not selection.error else None
    of = next((option.value for option in cluster if option.selected), "")
    rows, more = shown(report, _names(report)) if report else ((), "")
    left, no_margin = margin(report) if report and margin else ((), "")
    return ReportPage(
        cluster=cluster,
        by=tuple(Option(value=by.value, label=NAMES[by], selected=by is selection.by) for by in offered),
        first=f"{selection.first}",
        last=f"{selection.last}",
        choices=tuple(_choices(selection, address, of)),
        zone=str(selection.zone),
        period=f"{say.day(selection.first)} – {say.day(selection.last)}",
        of=NAMES[selection.by],
        error=selection.error,
        tiles=tiles(report) if report else (),
        rows=rows,
        more=more,
        total=total(report) if report and rows else None,
        nodes=nodes(report) if report else (),
        nodes_of=nodes_of(report, selection.zone) if report else "",
        notes=tuple(report.notes) if report else (),
        csv=csv + selection.query(cluster=of),
        margin=left,
        no_margin=no_margin,
        has_unknown=bool(report and report.seconds.unknown),
    )


def _names(report: Report) -> dict[str, str]:
    """How the tenants of an operator's report are called; a tenant's own report has no rows of tenants."""
    if report.by is not By.TENANT:
        return {}
    return dict(
        Tenant.objects.filter(slug__in=[row.labels["tenant"] for row in report.rows]).values_list(
            "slug", "name"
        )
    )


def _choices(selection: Asked, address: str, cluster: str) -> list[PeriodChoice]:
    today, this = selection.today, selection.today.replace(day=1)
    before = this - timedelta(days=1)
    periods = {
        "Last 7 days": (today - timedelta(days=6), today),
        "This month": (this, today),
        "Last month": (before.replace(day=1), before),
        "Last 90 days": (today - timedelta(days=89), today),
    }
    return [
        PeriodChoice(
            label=label,
            href=address
            + Asked(first=first, last=last, by=selection.by, zone=selection.zone, today=today).query(
                cluster=cluster
            ),
            chosen=(first, last) == (selection.first, selection.last),
        )
        for label, (first, last) in periods.items()
    ]


def _csv(report: Report, name: str, selection: Asked) -> HttpResponse:
    file = f"{name}-{selection.first}-{selection.last}.csv".replace('"', "")
    return HttpResponse(
        b"".join(as_csv(report)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{file}"'},
    )


def _midnight(day: date, zone: ZoneInfo) -> int:
    return int(datetime.combine(day, time(), zone).timestamp())
