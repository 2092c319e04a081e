"""What *Reports* shows Op of a cluster with many jobs is what its runs say, as of the moment that it names."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

from billing.documents.job_users import erase_users
from billing.models import EfficiencySnapshot
from billing.reports import cluster_efficiency, efficiency_snapshots, margin, operating_costs, snapshots
from billing.reports.cluster_efficiency import ClusterEfficiency
from billing.reports.efficiency_snapshots import Waiting
from billing.reports.operating_costs import Cost
from billing.reports.reporting import of_cluster
from billing.reports.shapes import By
from billing.reports.waste import Kind
from clusters import absent_records, capacity
from clusters.absent_records import RowsInFilesError
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import CapacityInterval, Cluster
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.scenarios.test_efficiency_snapshots import MARCH, NOW, Site

pytestmark = pytest.mark.django_db

MODELS = ("a100", "h100", "l4")


@pytest.fixture(autouse=True)
def _every_cluster_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)


def a_site(seed: int) -> Site:
    """Runs of a tenant with telemetry, one that nobody owns, nodes that were down for a while, and jobs that waited."""
    site = Site(random.Random(seed))
    for day, state in (("01", NodeState.UP), ("20", NodeState.DOWN), ("25", NodeState.UP)):
        nodes = [NodeSeen(name=model, gpu_model=model, gpus=8, state=state) for model in MODELS]
        capacity.observe(site.cluster, nodes, at(f"2026-03-{day}"))
    site.runs(30)
    ingest(
        site.cluster,
        a_job(account="whose", user="dan", gpus=2, gpu_model="l4", started="2026-03-03", ended="2026-03-04"),
        *(
            a_job(
                account="vision", gpus=8, gpu_model="h100", submitted=f"2026-03-0{day} 09:00", eligible=None,
                started=f"2026-03-0{day} 12:00", ended=f"2026-03-0{day} 13:00",
            )
            for day in range(5, 8)
        ),
    )  # fmt: skip
    operating_costs.set_costs([Cost("", model, "USD", Decimal("0.50"), date(2026, 1, 1)) for model in MODELS])
    return site


def look(
    cluster: Cluster,
    *,
    by: By | None = By.TENANT,
    days: tuple[int, int] = MARCH,
    moment: datetime = NOW,
    kind: Kind | None = None,
) -> ClusterEfficiency | None:
    figures = cluster_efficiency.load(
        cluster, since=days[0], until=days[1], moment=moment, by=by, top_jobs=True, kind=kind
    )
    return figures if isinstance(figures, ClusterEfficiency) else None


def shown(cluster: Cluster, *, by: By | None = By.TENANT, kind: Kind | None = None) -> ClusterEfficiency:
    figures = look(cluster, by=by, kind=kind)
    assert figures is not None
    return figures


def computed_at_once(cluster: Cluster, *, by: By | None, kind: Kind | None = None) -> ClusterEfficiency:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(efficiency_snapshots, "LARGE", 10**6)
        figures = shown(cluster, by=by, kind=kind)
    assert not figures.is_kept
    return figures


def renewed(cluster: Cluster) -> None:
    """A worker computes it as of now."""
    EfficiencySnapshot.objects.update(as_of=NOW - timedelta(days=1))
    look(cluster)
    outbox.drain()
    EfficiencySnapshot.objects.update(as_of=NOW)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_a_snapshot_says_what_the_runs_say_by_each_grouping_and_finding(seed: int) -> None:
    site = a_site(seed)
    assert look(site.cluster) is None
    for turn in range(3):
        renewed(site.cluster)
        for by in By:
            report = shown(site.cluster, by=by).report(by, top_jobs=True)
            whole = of_cluster(
                site.cluster,
                since=MARCH[0],
                until=MARCH[1],
                by=by,
                limit=efficiency_snapshots.PODS,
                top_jobs=0 if by is By.POD else efficiency_snapshots.TOP_JOBS,
            )
            assert report == whole
            assert margin.by_models(report, site.cluster) == margin.by_models(whole, site.cluster)
            assert not any("ledger" in note for note in report.notes)
        for kind in Kind:
            kept, direct = shown(site.cluster, by=None), computed_at_once(site.cluster, by=None, kind=kind)
            unused = kept.waste(kind)
            assert unused == direct.waste(kind)
            assert kept.use(unused) == direct.use(direct.waste(kind))
            assert kept.waiting == direct.waiting
        assert any(one.kind is Kind.WAITED and one.jobs == 3 for one in unused.findings)
        match turn:
            case 0:
                site.runs(5)  # which came late
            case 1:
                site.restated()


def test_the_margin_is_revenue_less_what_all_nodes_cost_on_each_day() -> None:
    site = a_site(3)
    cheaper, dearer = date(2026, 3, 11), date(2026, 3, 31)
    operating_costs.set_costs(
        [Cost("", "l4", "USD", Decimal("0.25"), cheaper), Cost("gpu1", "h100", "USD", Decimal(2), dearer)]
    )
    renewed(site.cluster)
    report = shown(site.cluster).report(By.TENANT)
    # 8 GPUs of each model: a100 for 31 days at 0.50; h100 for 30 at 0.50 and one at 2; l4 for 10 at 0.50 and 21 at 0.25
    cost = (
        8 * 24 * (31 * Decimal("0.5") + 30 * Decimal("0.5") + 2 + 10 * Decimal("0.5") + 21 * Decimal("0.25"))
    )
    assert margin.by_models(report, site.cluster).operating_cost == cost


def test_it_is_requested_once_stands_meanwhile_and_is_of_its_own_cluster() -> None:
    site = a_site(5)
    other = a_cluster("gpu2", complete_through="2026-04-20")
    own(site.lab, other, "vision")
    ingest(other, a_job(account="vision", gpus=4, started="2026-03-02", ended="2026-03-03"))
    assert look(site.cluster) is None
    assert look(site.cluster) is None
    assert look(other) is None
    assert EfficiencySnapshot.objects.filter(requested_at__isnull=False).count() == 2
    outbox.drain()
    (row,) = shown(other).report(By.TENANT).rows
    assert row.seconds.allocated == 4 * 86_400
    assert shown(site.cluster).report(By.TENANT).jobs > 20
    ingest(other, a_job(account="vision", started="2026-03-05", ended="2026-03-06"))
    EfficiencySnapshot.objects.filter(cluster=other).update(as_of=NOW - timedelta(days=1))
    figures = shown(other)
    assert (figures.is_pending, figures.report(By.TENANT).jobs) == (True, 1)
    outbox.drain()
    assert shown(other).report(By.TENANT).jobs == 2


def test_no_tenant_sees_it_and_who_is_erased_is_not_in_it() -> None:
    site = a_site(6)
    other: Tenant = a_tenant("other", plan=a_plan("other"), accounts=[(site.cluster, "other")])
    renewed(site.cluster)
    for tenant in (site.lab, other):
        with tenant_scope(tenant):
            assert not EfficiencySnapshot.objects.exists()
    users = shown(site.cluster, by=By.USER).report(By.USER).rows
    assert {"ann", "ben", "cy"} <= {row.labels["user"] for row in users}
    erase_users(site.lab)
    outbox.drain()
    assert look(site.cluster, by=By.USER) is None
    outbox.drain()
    users = shown(site.cluster, by=By.USER).report(By.USER).rows
    assert {row.labels["user"] for row in users}.isdisjoint({"ann", "ben", "cy"})


def test_what_a_worker_computed_while_names_were_erased_goes_with_them() -> None:
    site = a_site(7)
    erase_users(site.lab)
    EfficiencySnapshot.objects.create(
        cluster=site.cluster, since=0, until=1, as_of=NOW, answers={"user": "ann"}
    )
    EfficiencySnapshot.objects.create(tenant=site.lab, since=0, until=1, as_of=NOW, answers={"user": "ann"})
    outbox.drain()  # once the erasure is committed
    assert not EfficiencySnapshot.objects.exists()


def test_cost_and_capacity_are_of_one_moment() -> None:
    site = a_site(8)
    renewed(site.cluster)
    before = margin.by_models(shown(site.cluster).report(By.TENANT), site.cluster)
    CapacityInterval.objects.filter(since__lt=at("2026-03-20").timestamp()).delete()
    report = shown(site.cluster).report(By.TENANT)
    assert margin.by_models(report, site.cluster) == before
    assert report.capacity is not None
    assert sum(report.capacity.within(*MARCH).values()) == report.capacity.whole.total


def test_a_request_is_for_workers_that_know_clusters_and_waits_while_many_were_computed() -> None:
    site = a_site(9)
    assert look(site.cluster) is None
    message = OutboxMessage.objects.get(task__contains="efficiency")
    assert message.task == "billing.reports.tasks.refresh_cluster_efficiency"
    outbox.drain()
    EfficiencySnapshot.objects.update(as_of=NOW, seconds=snapshots.HOURLY)
    later = cluster_efficiency.load(site.cluster, since=MARCH[0], until=MARCH[1] - 86_400, moment=NOW)
    assert later == Waiting(is_requested=False)
    assert not OutboxMessage.objects.undone().filter(task=message.task).exists()


def test_days_that_were_dropped_since_they_were_requested_are_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = a_site(10)
    assert look(site.cluster) is None
    monkeypatch.setattr(absent_records, "list_between", lambda *_: [date(2026, 3, 1)])
    outbox.drain()
    assert EfficiencySnapshot.objects.get().as_of is None
    with pytest.raises(RowsInFilesError):
        look(site.cluster)
    assert not OutboxMessage.objects.undone().exists()


def test_jobs_without_gpus_make_a_cluster_large_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_cluster(complete_through="2026-04-20")
    ingest(
        cluster, *(a_job(gpus=0, cpu_milli=1_000, started="2026-03-02", ended="2026-03-03") for _ in range(3))
    )
    for most, is_large in ((3, False), (2, True)):
        monkeypatch.setattr(efficiency_snapshots, "LARGE", most)
        assert (look(cluster) is None) is is_large
