"""Reports of GPU efficiency: the operator's of a cluster, and what it has in common with that of a tenant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.reports import cluster_efficiency
from billing.reports.cluster_efficiency import ClusterEfficiency
from billing.reports.efficiency_snapshots import TOP_JOBS, Figures, Waiting
from billing.reports.reporting import of_cluster
from billing.reports.rounded_report import rounded_report
from billing.reports.shapes import By, Report
from billing.reports.table import as_csv
from billing.reports.waste import Kind
from clusters.absent_records import MOST
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.days import is_in_range
from portal.web import reporting, waste
from portal.web.access_decorators import answer, operator_page
from portal.web.day_ranges import NO_DAY
from portal.web.form_input import Option
from portal.web.page_frame import PageFrame

UTC_ZONE = ZoneInfo("UTC")
LONGEST = 400  # days that a page reports at once
PODS_IN_CSV = 10_000
AGAIN = "every 2s"
"""How often a page that waits for a worker asks whether it is done."""
LATER = "every 60s"
"""The same where its figures were not requested, as many others were lately."""
NAMES = {
    By.TENANT: gettext_noop("Tenant"),
    By.PROJECT: gettext_noop("Project"),
    By.NAMESPACE: gettext_noop("Account"),
    By.USER: gettext_noop("User"),
    By.MODEL: gettext_noop("GPU model"),
    By.POD: gettext_noop("Job"),
}
TOO_LONG = gettext_noop("A page reports {days} days at most. Choose a shorter period.")
BACKWARDS = gettext_noop("The period ends before it begins. Choose a later last day.")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The days of a zone that are reported, the last one included, and by what."""

    first: date
    last: date
    by: By
    zone: ZoneInfo
    today: date
    top_jobs: int = 0  # most expensive jobs that are named below each row
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
            return _(NO_DAY)
        if self.first > self.last:
            return _(BACKWARDS)
        too_long = self.last - self.first >= timedelta(days=LONGEST)
        return _(TOO_LONG).format(days=LONGEST) if too_long else ""

    def query(self, **more: str) -> str:
        parameters = {"from": f"{self.first}", "through": f"{self.last}", "by": self.by.value, **more}
        parameters["top"] = str(TOP_JOBS) if self.top_jobs else ""
        return "?" + urlencode({name: value for name, value in parameters.items() if value})


@operator_page("reports")
def reports(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    selection, clusters, cluster = selection_of_operator(request)
    loaded = load_of_cluster(cluster, selection, by=selection.by) if cluster else None
    figures = loaded if isinstance(loaded, ClusterEfficiency) else None
    page = report_page(
        selection,
        offered=tuple(By),
        make=(lambda: figures.report(selection.by, top_jobs=bool(selection.top_jobs))) if figures else None,
        more=(lambda report: _of_capacity(report, selection, figures)) if figures else None,
        address=reverse("operator_reports"),
        csv=reverse("operator_reports_csv"),
        cluster=tuple(Option(value=one.name, label=one.name, selected=one == cluster) for one in clusters),
    )
    page["month"] = f"{selection.today.replace(day=1) - timedelta(days=1):%Y-%m}"
    if cluster is None:
        return answer(request, frame, page, whole="operator/reports.html")
    return answer_as_of(request, frame, page, selection, loaded, whole="operator/reports.html")


@operator_page("reports")
def reports_csv(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    del frame
    selection, _clusters, cluster = selection_of_operator(request)
    if cluster is None or selection.error:
        raise Http404(selection.error or "no cluster yet")
    report = of_cluster(
        cluster,
        since=selection.since,
        until=selection.until,
        by=selection.by,
        limit=PODS_IN_CSV,
        top_jobs=selection.top_jobs,
        most_in_files=MOST,
    )
    return csv_answer(report, f"{cluster.name}-{selection.by.value}", selection)


def load_of_cluster(
    cluster: Cluster, selection: Selection, *, by: By | None = None, kind: Kind | None = None
) -> ClusterEfficiency | Waiting | None:
    """None where the days are none."""
    if selection.error:
        return None
    return cluster_efficiency.load(
        cluster,
        since=selection.since,
        until=selection.until,
        moment=datetime.now(UTC),
        by=by,
        top_jobs=bool(selection.top_jobs),
        kind=kind,
    )


def selection_of_operator(request: HttpRequest) -> tuple[Selection, list[Cluster], Cluster | None]:
    clusters = list(Cluster.objects.order_by("name"))
    name = request.GET.get("cluster", "")
    chosen = next((one for one in clusters if one.name == name), None) if name else None
    if name and chosen is None:
        raise Http404("no such cluster")
    selection = read_selection(request.GET, UTC_ZONE, datetime.now(UTC), by=By.TENANT)
    return selection, clusters, chosen or (clusters[0] if clusters else None)


def read_selection(query: QueryDict, zone: ZoneInfo, moment: datetime, *, by: By) -> Selection:
    """Without a period the present month. What is no group is no choice: 404. A day is typed, so it may be wrong."""
    today = moment.astimezone(zone).date()
    try:
        chosen = By(query.get("by") or by.value)
    except ValueError as unknown:
        raise Http404("no such choice") from unknown
    first = _day(query.get("from", ""), today.replace(day=1))
    last = _day(query.get("through", ""), today)
    return Selection(
        first=first or today.replace(day=1),
        last=last or today,
        by=chosen,
        zone=zone,
        today=today,
        top_jobs=TOP_JOBS if query.get("top") and chosen is not By.POD else 0,
        readable=first is not None and last is not None,
    )


def _day(typed: str, otherwise: date) -> date | None:
    """None for what is no day, or none that a page reports."""
    try:
        day = date.fromisoformat(typed) if typed else otherwise
    except ValueError:
        return None
    return day if is_in_range(day) else None


def report_page(
    selection: Selection,
    *,
    offered: tuple[By, ...],
    make: Callable[[], Report] | None,
    more: Callable[[Report], dict[str, object]] | None = None,
    address: str,
    csv: str,
    cluster: tuple[Option, ...] = (),
) -> dict[str, object]:
    report = make() if make is not None and not selection.error else None
    of = next((option.value for option in cluster if option.selected), "")
    page: dict[str, object] = {
        "cluster": cluster,
        "by": [Option(value=by.value, label=_(NAMES[by]), selected=by is selection.by) for by in offered],
        "selection": selection,
        "choices": _choices(selection, address, of),
        "of": NAMES[selection.by],
        "csv": csv + selection.query(cluster=of),
    }
    if report is None:
        return page
    shown = rounded_report(report)
    rows, more_rows = reporting.rows(report, shown, _names(report))
    return page | {
        "report": report,
        "tiles": reporting.tiles(report, shown),
        "rows": rows,
        "more": more_rows,
        "total": reporting.total(report, shown),
        "capacity": reporting.capacity_rows(shown),
        "capacity_period": reporting.capacity_period(report, selection.zone),
        "top": TOP_JOBS,
        **(more(report) if more is not None and rows else {}),
    }


def _of_capacity(report: Report, selection: Selection, figures: ClusterEfficiency) -> dict[str, object]:
    """What is shown of a cluster alone: where its capacity went, what was not used, and the margin."""
    cluster, unused = figures.cluster, figures.waste()
    use = figures.use(unused)
    tiles, no_margin = reporting.margin_of(report, cluster)
    query = selection.query(cluster=cluster.name)
    return {
        "findings": waste.finding_rows(unused, lambda kind: reverse("operator_waste", args=[kind]) + query),
        "parts": waste.capacity_parts(use) if use else [],
        "parts_note": waste.capacity_note(use) if use else "",
        "margin": tiles,
        "no_margin": no_margin,
    }


def _names(report: Report) -> dict[str, str]:
    """How the tenants of an operator's report are called; a tenant's own report has no rows of tenants."""
    if report.by is not By.TENANT:
        return {}
    return dict(
        Tenant.objects.filter(slug__in=[row.labels["tenant"] for row in report.rows]).values_list(
            "slug", "name"
        )
    )


def _choices(selection: Selection, address: str, cluster: str) -> list[tuple[str, str, bool]]:
    """The usual periods: label, address, and whether it is the one shown."""
    today, this = selection.today, selection.today.replace(day=1)
    before = this - timedelta(days=1)
    periods = {
        _("Last 7 days"): (today - timedelta(days=6), today),
        _("This month"): (this, today),
        _("Last month"): (before.replace(day=1), before),
        _("Last 90 days"): (today - timedelta(days=89), today),
    }
    return [
        (
            label,
            address + replace(selection, first=first, last=last).query(cluster=cluster),
            (first, last) == (selection.first, selection.last),
        )
        for label, (first, last) in periods.items()
    ]


def answer_as_of(
    request: HttpRequest,
    frame: PageFrame,
    page: dict[str, object],
    selection: Selection,
    figures: Figures | Waiting | None,
    *,
    whole: str,
) -> HttpResponse:
    """The page, which asks whether its figures are there while a worker computes them, and then loads again.

    `figures` are None where the days are none.
    """
    again, as_of = "", None
    if isinstance(figures, Waiting):
        again = AGAIN if figures.is_requested else LATER
    elif figures is not None:
        again, as_of = AGAIN if figures.is_pending else "", figures.as_of if figures.is_kept else None
    page |= {
        "is_computed": not isinstance(figures, Waiting),
        "as_of": as_of,
        "zone": selection.zone,
        "here": request.get_full_path(),
        "again": again,
        "later": again == LATER,
    }
    response = answer(request, frame, page, whole=whole, part="tenant/_as_of.html")
    if not again:
        response["HX-Refresh"] = "true"  # heeded by the question alone
    return response


def csv_answer(report: Report, name: str, selection: Selection) -> HttpResponse:
    file = f"{name}-{selection.first}-{selection.last}.csv".replace('"', "")
    return HttpResponse(
        b"".join(as_csv(report)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{file}"'},
    )


def _midnight(day: date, zone: ZoneInfo) -> int:
    return int(datetime.combine(day, time(), zone).timestamp())
