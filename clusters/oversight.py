"""What the operator looks after: how far each cluster has been read, and the rows that were set aside."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, OuterRef, Q, Subquery, Sum

from clusters.models import Cluster, Pull, Quarantined

PAGE = 50


@dataclass(frozen=True, slots=True)
class Stand:
    """One cluster and its last pass. `jobs`: records that its passes brought."""

    cluster: Cluster
    accounts: int
    jobs: int
    pull: Pull | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Rows of one cluster that were set aside for one reason."""

    cluster: str
    code: str
    rows: int


def clusters() -> list[Stand]:
    """All clusters by name. Two queries."""
    newest = Pull.objects.filter(cluster=OuterRef("pk")).order_by("-started_at", "-pk").values("pk")[:1]
    brought = Pull.objects.filter(cluster=OuterRef("pk")).values("cluster").annotate(n=Sum("new")).values("n")
    found = Cluster.objects.annotate(
        account_count=Count("accounts"), jobs=Subquery(brought), newest=Subquery(newest)
    ).order_by("name")
    pulls = Pull.objects.in_bulk([row.newest for row in found if row.newest])
    return [Stand(row, row.account_count, row.jobs or 0, pulls.get(row.newest)) for row in found]


def reasons(*, resolved: bool) -> list[Reason]:
    """Rows in quarantine per cluster and code, by cluster. One query."""
    found = (
        Quarantined.objects.filter(resolved_at__isnull=not resolved)
        .values_list("cluster__name", "code")
        .annotate(rows=Count("pk"))
        .order_by("cluster__name", "code")
    )
    return [Reason(*row) for row in found]


def set_aside(
    *, resolved: bool, cluster: str = "", code: str = "", after: int | None = None
) -> tuple[list[Quarantined], int | None]:
    """A page of quarantined rows, the newest first, and the key behind which the next one begins."""
    chosen = Q(resolved_at__isnull=not resolved)
    if cluster:
        chosen &= Q(cluster__name=cluster)
    if code:
        chosen &= Q(code=code)
    if after is not None:
        chosen &= Q(pk__lt=after)
    rows = list(Quarantined.objects.filter(chosen).select_related("cluster").order_by("-pk")[: PAGE + 1])
    return rows[:PAGE], rows[PAGE - 1].pk if len(rows) > PAGE else None
