"""What the operator's page *Reports* shows of a cluster: computed from the runs at once where they are few, else kept.

Of many jobs it is a snapshot, with its moment. Everything in it is of one sight of the database, so that sums close
while usage is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import date, datetime
from fractions import Fraction
from typing import Any

from django.db import connection, transaction

from billing.catalog import plans
from billing.reports import capacity_use, efficiency_snapshots, reporting, waste
from billing.reports.capacity_use import CapacityUse
from billing.reports.efficiency_snapshots import JOBS, PODS, TOP_JOBS, WASTE, Figures, Waiting
from billing.reports.reporting import Whole
from billing.reports.shapes import By, Capacity, ModelCapacity, Nodes, Report
from billing.reports.waste import Cheaper, Kind, Waste, WasteQuery
from billing.sealed_months import all_tenants_rows
from billing.sealed_months.all_tenants_rows import MOST_RECORDS
from clusters import absent_records, usage_reports
from clusters.models import Cluster
from clusters.usage_reports import WaitingJob
from portal.core.one_sight import one_sight
from portal.sql_files import Statements

sql = Statements(__file__, "report.sql")

BYS = tuple(By)
KINDS = tuple(kind for kind in Kind if kind is not Kind.WAITED)  # that one is of the capacity
WHOLE = "whole"  # the part of the answers that is of the cluster, whatever it is grouped by


@dataclass(frozen=True, slots=True)
class ClusterEfficiency(Figures):
    """What everybody held of a cluster."""

    cluster: Cluster

    def report(self, by: By, *, top_jobs: bool = False) -> Report:
        sums = self.sums(by, top_jobs=top_jobs)
        whole = Whole(Fraction(self.answers[WHOLE]["ledger"]), self.capacity)
        return reporting.report_of_cluster(sums, whole, by=by, since=self.since, until=self.until)

    @property
    def capacity(self) -> Capacity | None:
        """Of the part of these days in which it is known."""
        plain = self.answers[WHOLE]["capacity"]
        return _capacity(plain) if plain else None

    def waste(self, kind: Kind | None = None) -> Waste:
        """Of the days with known capacity, else as far as the cluster is read; with the dearest jobs of a kind."""
        since, until = self.answers[WHOLE]["days"]
        rows, capacity = self.answers[WASTE], self.capacity
        unused = waste.waste_of_rows(rows, since=since, until=until, cheaper=self.cheaper, kind=kind)
        return capacity_use.with_waiting(capacity, unused, self.waiting[0]) if capacity else unused

    @property
    def waiting(self) -> tuple[int, list[WaitingJob]]:
        """How many jobs waited while GPUs of their model stood idle, and those that waited for most."""
        count, jobs = self.answers[WHOLE]["waiting"]
        return count, [WaitingJob(*job) for job in jobs]

    def use(self, unused: Waste) -> CapacityUse | None:
        """Where the capacity went; None where it is not known. `unused` is what `waste` found."""
        capacity = self.capacity
        return capacity_use.of_capacity(capacity, unused) if capacity else None


def load(
    cluster: Cluster,
    *,
    since: int,
    until: int,
    moment: datetime,
    by: By | None = None,
    top_jobs: bool = False,
    kind: Kind | None = None,
) -> ClusterEfficiency | Waiting:
    """What everybody held of the cluster in [since, until) by one grouping, and its waste with the jobs of a kind.

    Waiting while a worker computes it for the first time. Asked for again, the same worker does it once. Raises
    RowsInFilesError.
    """
    months = absent_records.list_between(since, until)
    cheaper = waste.cheaper_models(None)
    if _is_large(cluster, since, until, months):
        parts = [WASTE, WHOLE, *([by.value] if by else [])]
        with transaction.atomic():  # nothing is requested of files that cannot be read
            snapshot, is_pending = efficiency_snapshots.find(
                cluster,
                since=since,
                until=until,
                moment=moment,
                parts=parts,
                in_files=bool(months),
                may_request=True,
            )
            if snapshot is None:
                all_tenants_rows.refuse_unreadable(months)
        if snapshot is not None and snapshot.as_of is None and snapshot.refusal:
            absent_records.refuse(months, snapshot.refusal)
        if snapshot is None or snapshot.as_of is None:
            return Waiting(is_requested=is_pending)
        return ClusterEfficiency(
            since, until, snapshot.as_of, is_pending, True, snapshot.answers, cheaper, cluster
        )
    with one_sight(), all_tenants_rows.cluster_usage([cluster.pk], since=since, until=until):
        answers = _compute(
            cluster,
            since=since,
            until=until,
            cheaper=cheaper,
            bys=[by] if by else [],
            top_jobs=TOP_JOBS if top_jobs else 0,
            kinds=[kind] if kind and kind is not Kind.WAITED else [],
        )
    return ClusterEfficiency(since, until, moment, False, False, answers, cheaper, cluster)


def compute(cluster: Cluster, *, since: int, until: int) -> dict[str, Any]:
    """All that pages may show of [since, until), for a snapshot. In a transaction.

    Raises RowsInFilesError, also where files have more than MOST_RECORDS of the cluster and these days.
    """
    cheaper = waste.cheaper_models(None)
    with all_tenants_rows.cluster_usage([cluster.pk], since=since, until=until, most=MOST_RECORDS):
        return _compute(
            cluster, since=since, until=until, cheaper=cheaper, bys=BYS, top_jobs=TOP_JOBS, kinds=KINDS
        )


def _compute(
    cluster: Cluster,
    *,
    since: int,
    until: int,
    cheaper: Cheaper,
    bys: Sequence[By],
    top_jobs: int,
    kinds: Sequence[Kind],
) -> dict[str, Any]:
    by_use = plans.by_use()
    sums = (
        reporting.sums_of_cluster(
            cluster, since=since, until=until, bys=bys, limit=PODS, top_jobs=top_jobs, by_use=by_use
        )
        if bys
        else {}
    )
    whole = reporting.whole_of(cluster, since=since, until=until)
    capacity = whole.capacity
    days = since, waste.end_of_use(until, cluster.complete_through, since)
    waiting: tuple[int, list[WaitingJob]] = 0, []
    if capacity is not None:
        days = capacity.since, capacity.until
        if waited := [of.gpu_model for of in capacity.models if of.waited]:
            waiting = usage_reports.waiting_jobs(
                cluster, models=waited, since=days[0], until=days[1], most=JOBS
            )
    rows = waste.rows_of_cluster(cluster, WasteQuery(*days, cheaper, kinds, JOBS, by_use))
    return {by.value: asdict(one) for by, one in sums.items()} | {
        WASTE: rows,
        WHOLE: {
            "ledger": str(whole.ledger),
            "capacity": _plain(capacity) if capacity else None,
            "days": days,
            "waiting": (waiting[0], [astuple(job) for job in waiting[1]]),
        },
    }


def _plain(capacity: Capacity) -> dict[str, Any]:
    return {
        "since": capacity.since,
        "until": capacity.until,
        "models": [[str(value) for value in astuple(of)] for of in capacity.models],
        "spans": capacity.spans,
    }


def _capacity(plain: Mapping[str, Any]) -> Capacity:
    models = tuple(ModelCapacity(name, *map(Fraction, seconds)) for name, *seconds in plain["models"])
    return Capacity(plain["since"], plain["until"], models, tuple(Nodes(*span) for span in plain["spans"]))


def _is_large(cluster: Cluster, since: int, until: int, dropped: Sequence[date]) -> bool:
    """Whether the months of these days have more than `LARGE` rows to read, or the files of those that are dropped."""
    if dropped and all_tenants_rows.count_records(dropped) > efficiency_snapshots.LARGE:
        return True
    with connection.cursor() as cursor:
        cursor.execute(
            sql.COUNT_TO_LIMIT,
            {"cluster": cluster.pk, "since": since, "until": until, "limit": efficiency_snapshots.LARGE + 1},
        )
        return bool(cursor.fetchone()[0] > efficiency_snapshots.LARGE)
