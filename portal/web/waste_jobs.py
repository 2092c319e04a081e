"""The jobs behind a finding of unused GPUs: those of a cluster, and what a page of a tenant's has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.reports.cluster_efficiency import ClusterEfficiency
from billing.reports.naming import run_names
from billing.reports.waste import Finding, Kind, Waste
from billing.rules.money import Money
from portal.web import waste as shown
from portal.web.access_decorators import operator_page
from portal.web.page_frame import PageFrame
from portal.web.reports import Selection, answer_as_of, load_of_cluster, selection_of_operator


@dataclass(frozen=True, kw_only=True)
class WasteJob:
    number: str
    url: str  # of its page; "" where no tenant's page has it
    name: str
    user: str
    account: str
    gpu_model: str
    seconds: Fraction  # GPU-seconds
    money: Sequence[Money]


@operator_page("reports")
def operator_waste(request: HttpRequest, frame: PageFrame, finding: str) -> HttpResponse:
    chosen, (selection, _clusters, cluster) = read_kind(finding), selection_of_operator(request)
    if cluster is None or selection.error:
        raise Http404(selection.error or "no cluster yet")
    loaded = load_of_cluster(cluster, selection, kind=chosen)
    figures = loaded if isinstance(loaded, ClusterEfficiency) else None
    waste = figures.waste(chosen) if figures else Waste(selection.since, selection.until, [], {}, {})
    waited = _waiting_rows(figures) if figures and chosen is Kind.WAITED else None
    page = finding_page(chosen, selection, waste, job_rows(waste, own="") if waited is None else waited)
    page["cluster"] = cluster.name
    page["back"] = reverse("operator_reports") + selection.query(cluster=cluster.name)
    return answer_as_of(request, frame, page, selection, loaded, whole="tenant/waste.html")


def read_kind(text: str) -> Kind:
    try:
        return Kind(text)
    except ValueError as unknown:
        raise Http404("no such finding") from unknown


def _waiting_rows(figures: ClusterEfficiency) -> list[WasteJob]:
    _count, waiting = figures.waiting
    slugs = run_names([job.record for job in waiting], own="")
    return [
        WasteJob(
            number=job.job_id or str(job.record),
            url=_url(slugs[job.record].slug, job.record),
            name=slugs[job.record].name,
            user=job.user,
            account=job.account,
            gpu_model=job.gpu_model,
            seconds=Fraction(job.gpus * job.seconds),
            money=(),
        )
        for job in waiting
    ]


def job_rows(waste: Waste, *, own: str) -> list[WasteJob]:
    names = run_names([job.record for job in waste.jobs], own=own)
    return [
        WasteJob(
            number=(run := names[job.record]).job_id or str(job.record),
            url=_url(run.slug, job.record),
            name=run.name,
            user=run.user,
            account=run.account,
            gpu_model=run.gpu_model,
            seconds=job.seconds,
            money=shown.moneys(job.money),
        )
        for job in waste.jobs
    ]


def _url(slug: str, record: int) -> str:
    return reverse("job", args=[slug, record]) if slug else ""


def finding_page(
    kind: Kind, selection: Selection, waste: Waste, jobs: Sequence[WasteJob]
) -> dict[str, object]:
    finding = next((one for one in waste.findings if one.kind is kind), Finding(kind, Fraction(0), {}, 0))
    (row,) = shown.finding_rows(Waste(waste.since, waste.until, [finding], {}, {}), lambda _kind: "")
    return {
        "finding": row,
        "selection": selection,
        "jobs": jobs,
        "more": max(finding.jobs - len(jobs), 0),
        "waited": kind is Kind.WAITED,
        "held": _("GPU-hours waited for") if kind is Kind.WAITED else _("GPU-hours not used"),
    }
