"""What the operator looks after: how far each cluster has been read, and the rows that were set aside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, OuterRef, Q, Subquery, Sum

from clusters import capacity, declared_nodes, incomplete_hours, open_runs
from clusters.capacity import ModelCapacity
from clusters.declared_nodes import Node
from clusters.models import (
    AccountBlock,
    ApiServer,
    Cluster,
    Connection,
    IncompleteHour,
    Pull,
    Quarantined,
    Telemetry,
    VanishedRun,
)
from portal.core import pagination
from portal.core.pagination import Page

PAGE = 50
PASSES = 15  # of one cluster that its page shows
LATELY = timedelta(days=1)
HOURS = 24  # not seen in full, of those that its page shows
STILL_TO_CLOSE = timedelta(days=62)  # what lies before is closed


@dataclass(frozen=True, slots=True)
class Stand:
    """One cluster and its last pull. `jobs`: records that its pulls of the last day brought.

    `poor_hours`: hours of the last two months that were seen less than its connection wants.
    """

    cluster: Cluster
    accounts: int
    jobs: int
    pull: Pull | None
    poor_hours: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Rows of one cluster that were set aside for one reason."""

    cluster: str
    code: str
    rows: int


def clusters(*, moment: datetime) -> list[Stand]:
    """All clusters by name. Two queries, which cost the same however many passes there have been."""
    newest = Pull.objects.filter(cluster=OuterRef("pk")).order_by("-started_at", "-pk").values("pk")[:1]
    lately = Pull.objects.filter(cluster=OuterRef("pk"), started_at__gt=moment - LATELY)
    brought = lately.values("cluster").annotate(n=Sum("new")).values("n")
    since = int((moment - STILL_TO_CLOSE).timestamp())
    poor = incomplete_hours.poor(since=since).filter(cluster=OuterRef("pk")).order_by()
    unseen = poor.values("cluster").annotate(n=Count("pk")).values("n")
    rows = Cluster.objects.annotate(
        account_count=Count("accounts"),
        jobs=Subquery(brought),
        newest=Subquery(newest),
        poor_hours=Subquery(unseen),
    ).order_by("name")
    pulls = Pull.objects.in_bulk([row.newest for row in rows if row.newest])
    return [
        Stand(row, row.account_count, row.jobs or 0, pulls.get(row.newest), row.poor_hours or 0)
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class ClusterDetail:
    """One cluster closely: how it is reached, its newest pulls first, what it has and what it lost."""

    cluster: Cluster
    connection: Connection | None
    pulls: list[Pull]
    capacity: list[ModelCapacity]
    vanished: list[VanishedRun]
    vanished_runs: int  # in all; `vanished` has the newest
    unseen: list[IncompleteHour]  # the newest
    telemetry: Telemetry | None
    api_server: ApiServer | None
    blocked: int  # accounts
    declared: list[Node]

    @property
    def running(self) -> Pull | None:
        """The pull under way; one whose worker died is told from it by the next pull only."""
        return next(
            (pull for pull in self.pulls if pull.outcome == Pull.Outcome.RUNNING and pull.until), None
        )


def cluster_detail(name: str) -> ClusterDetail | None:
    """The cluster of that name, None without one. Eleven queries."""
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is None:
        return None
    return ClusterDetail(
        cluster,
        Connection.objects.select_related("cluster").filter(cluster=cluster).first(),
        list(Pull.objects.filter(cluster=cluster).order_by("-started_at", "-pk")[:PASSES]),
        capacity.now(cluster),
        open_runs.vanished(cluster),
        VanishedRun.objects.filter(record__cluster=cluster).count(),
        incomplete_hours.newest(cluster, limit=HOURS),
        Telemetry.objects.filter(cluster=cluster).first(),
        ApiServer.objects.filter(cluster=cluster).first(),
        AccountBlock.objects.filter(cluster=cluster, user="", ended_at=None).count(),
        declared_nodes.nodes_of(cluster),
    )


def reasons(*, resolved: bool) -> list[Reason]:
    """Rows in quarantine per cluster and code, by cluster. One query."""
    counts = (
        Quarantined.objects.filter(resolved_at__isnull=not resolved)
        .values_list("cluster__name", "code")
        .annotate(rows=Count("pk"))
        .order_by("cluster__name", "code")
    )
    return [Reason(*row) for row in counts]


def set_aside(*, resolved: bool, cluster: str, code: str, after: str) -> Page[Quarantined]:
    """A page of quarantined rows, the newest first, behind the cursor `after`."""
    chosen = Q(resolved_at__isnull=not resolved)
    if cluster:
        chosen &= Q(cluster__name=cluster)
    if code:
        chosen &= Q(code=code)
    rows = Quarantined.objects.filter(chosen).select_related("cluster")
    return pagination.page(rows, "-id", after=after, size=PAGE)


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """One cluster. `failures` is None where it is not pulled: read from files, or its connection is turned off."""

    cluster: str
    complete_through: datetime | None  # None: never read
    failures: int | None  # passes that failed in a row
    last_success_at: datetime | None  # None: no pass has ended well yet


def cluster_health() -> list[ClusterHealth]:
    """All clusters by name. One query."""
    rows = Cluster.objects.order_by("name").values_list(
        "name",
        "complete_through",
        "connection__failures",
        "connection__last_success_at",
        "connection__enabled",
    )
    return [
        ClusterHealth(name, through, failures if enabled else None, success)
        for name, through, failures, success, enabled in rows
    ]
