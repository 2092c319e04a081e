"""The overview of a member who sees their own jobs and the totals of their projects alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from django.http import HttpResponse

from billing.queries import project_uses
from billing.queries.costs import per_currency
from billing.queries.overview import Around, Use
from billing.queries.running_now import count_running
from billing.rules.money import Money
from portal.web.access_decorators import TenantRequest, answer
from portal.web.tiles import Tile, running_tile


@dataclass(frozen=True, kw_only=True)
class ProjectRow:
    """What everybody together used of a project in the period."""

    name: str
    gpu_seconds: Fraction
    cost: Sequence[Money]


@dataclass(frozen=True, kw_only=True)
class OwnOverviewPage:
    around: Around | None
    projects: Sequence[ProjectRow]  # those that the person's jobs ran in, the most expensive first
    users: Sequence[str]  # what the person is called on the clusters
    tiles: Sequence[Tile]  # of the person's jobs, while the period runs


def own_overview(request: TenantRequest, around: Around | None) -> HttpResponse:
    """Two queries. Whose projects and jobs are read is the scope's matter."""
    uses = project_uses.list_uses(request.tenant, around.period) if around else []
    users = request.tenant.only_users or ()
    running = around is not None and request.moment < around.period.end
    page = OwnOverviewPage(
        around=around,
        projects=_rows(uses),
        users=users,
        tiles=(running_tile(request, count_running(request.tenant, request.marks)),)
        if users and running
        else (),
    )
    return answer(request, request.frame, page, whole="tenant/own_overview.html")


def _rows(uses: Sequence[Use]) -> list[ProjectRow]:
    by_project: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        by_project[use.project].append(use)
    return [
        ProjectRow(
            name=name,
            gpu_seconds=sum((use.gpu_seconds for use in own), Fraction(0)),
            cost=per_currency(amount for use in own for amount in use.cost),
        )
        for name, own in by_project.items()
    ]
