"""What queues of Kueue held above their quota: a real Prometheus's gauges, and pods that were pulled from it."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating import pulls
from clusters.borrowed_quota import Borrowed, QueueRun, latest_first
from clusters.connectors.prometheus.quotas import QuotaExcess
from clusters.models import Cluster, ClusterKind, Connection
from tests.builders import a_cluster, a_plan, a_tenant
from tests.contracts.prometheus_worlds import World, Worlds
from tests.integration.prom_lab import Lab
from tests.scenarios.test_commands_operator import answer_of as command

NOMINAL, USAGE = "kueue_cluster_queue_nominal_quota", "kueue_cluster_queue_resource_usage"
OPTIONS = {"preset": "kueue", "account_from": "namespace", "matcher": 'cluster="borrowed"'}


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    """research may use 2 GPUs. Its pods: first from the begin, second from 10 min on, third from 20 to 90 min, fourth
    from 30 to 50 min. infer has one of its one."""
    world_set = Worlds(pushed_lab)
    world = world_set.new("borrowed")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    for name, since, until in (
        ("first", 0, None),
        ("second", 600, None),
        ("third", 1200, 5400),
        ("fourth", 1800, 3000),
    ):
        _pod(world, name, "research", since, until)
    _pod(world, "serves", "infer", 0, None)
    _gauge(world, NOMINAL, "research", [(0, None, 2)])
    _gauge(world, NOMINAL, "infer", [(0, None, 1)])
    _gauge(world, USAGE, "infer", [(0, None, 1)])
    used = [(0, 600, 1), (600, 1200, 2), (1200, 1800, 3), (1800, 3000, 4), (3000, 5400, 3), (5400, None, 2)]
    _gauge(world, USAGE, "research", used)
    world_set.push()
    return world_set


def _pod(world: World, name: str, queue: str, since: int, until: int | None) -> None:
    label = {"label_kueue_x_k8s_io_cluster_queue_name": queue}
    identity = {"namespace": "team", "pod": name, "uid": world.uid(name)}
    gone = None if until is None else until + 600
    world.series("kube_pod_labels", {**identity, **label}, [(since, gone, 1)])
    over = [] if until is None else [(until, gone, "Succeeded")]
    world.pod(name, since=since, until=gone, phases=[(since, until, "Running"), *over], completed=until)


def _gauge(world: World, metric: str, queue: str, parts: list[tuple[int, int | None, int]]) -> None:
    labels = {"cohort": "all", "cluster_queue": queue, "flavor": "h100", "resource": "nvidia.com/gpu"}
    world.series(metric, labels, parts)


def kube(worlds: Worlds, **options: str) -> Cluster:
    """The cluster, with all that was pulled of its two hours; a GPU-hour costs $2.00."""
    cluster = a_cluster("kube", kind=ClusterKind.PROMETHEUS)
    a_tenant(plan=a_plan(), accounts=[(cluster, "team")])
    begin = datetime.fromtimestamp(worlds.begin, UTC)
    Connection.objects.create(
        cluster=cluster, base_url=worlds.url, first_usage_from=begin, options={**OPTIONS, **options}
    )
    until = datetime.fromtimestamp(worlds.begin + World.LENGTH - 600, UTC)
    pulled = pulls.pull(
        cluster, since=begin, until=until, moment=datetime.now(UTC)
    )  # by the real server's clock
    assert pulled.outcome is pulls.PullOutcome.DONE, pulled.error
    return cluster


def report(
    worlds: Worlds, *, since: int, until: int, csv: Path | None = None, code: int = 0
) -> dict[str, Any]:
    period = [datetime.fromtimestamp(worlds.begin + at, UTC).isoformat() for at in (since, until)]
    more = ["--csv", csv] if csv else []
    answer, ended = command("report_borrowed", "kube", "--from", period[0], "--to", period[1], *more)
    assert ended == code
    return answer


@pytest.mark.django_db
def test_what_is_above_the_quota_is_put_down_to_the_pods_that_began_last(
    worlds: Worlds, tmp_path: Path
) -> None:
    kube(worlds)

    # third: 20 to 90 min, fourth: 30 to 50 min; 5,400 s together, and $2.00 an hour.
    answer = report(worlds, since=0, until=6600, csv=tmp_path / "borrowed.csv")
    assert answer["estimated"] is True
    assert answer["queues"] == [
        {"queue": "infer", "above_quota_gpu_hours": "0", "nobodys_gpu_hours": "0", "told_percent": "100"},
        {
            "queue": "research",
            "above_quota_gpu_hours": "1.5",
            "nobodys_gpu_hours": "0",
            "told_percent": "100",
        },
    ]
    assert answer["rows"] == [
        {
            "queue": "research",
            "tenant": "vision-lab",
            "standing": "charged",
            "currency": "USD",
            "borrowed_gpu_hours": "1.5",
            "cost": "3",
        }
    ]
    assert answer["notes"] == []
    assert (tmp_path / "borrowed.csv").read_text().splitlines()[1:] == [
        "research,vision-lab,charged,USD,1.5,3,yes"
    ]


@pytest.mark.django_db
def test_parts_of_a_period_add_up_and_what_no_gauge_tells_is_said(worlds: Worlds) -> None:
    kube(worlds)

    parts = [report(worlds, since=since, until=since + 1500) for since in (0, 1500, 3000, 4500)]

    # 5 min of third; then 25 min of it and 20 of fourth; 25 min; 15 min.
    assert [part["rows"][0]["cost"] for part in parts] == [
        "0.166666666666666667",
        "1.5",
        "0.833333333333333333",
        "0.5",
    ]
    early = report(worlds, since=-3600, until=3600)
    assert early["notes"] == [
        "For a part of the period the gauges told nothing: what was borrowed then is not known."
    ]
    assert [queue["told_percent"] for queue in early["queues"]] == ["50", "50"]


@pytest.mark.django_db
def test_where_it_cannot_be_told_the_way_to_it_is_said(worlds: Worlds) -> None:
    cluster = kube(worlds)
    away = report(worlds, since=-7200, until=-3600, code=2)
    backwards = report(worlds, since=60, until=0, code=2)
    Connection.objects.filter(cluster=cluster).update(options={})
    other = report(worlds, since=0, until=3600, code=2)

    assert "has no kueue_cluster_queue_nominal_quota in this time: set metrics." in str(away)
    assert "The period ends before it begins: give a later end." in str(backwards)
    assert 'Queues of kube are not those of Kueue: set preset = "kueue".' in str(other)


RUN = st.builds(
    QueueRun,
    record=st.integers(1, 9),
    queue=st.just("q"),
    started=st.integers(0, 50),
    finish=st.integers(51, 99),
    gpus=st.integers(1, 8),
    share=st.just(Fraction(1)),
)


@given(st.lists(RUN, max_size=6, unique_by=lambda run: run.record), st.integers(0, 20))
def test_no_more_is_taken_than_was_above_the_quota_and_than_was_held(runs: list[QueueRun], gpus: int) -> None:
    borrowings = list(latest_first(runs, [QuotaExcess("q", 10, 90, gpus)]))

    for at in range(10, 90):
        now = [one for one in borrowings if one.since <= at < one.until]
        active_runs = {run.record: run for run in runs if run.started <= at < run.finish}
        assert sum(one.gpus for one in now) == min(gpus, sum(run.gpus for run in active_runs.values()))
        assert all(one.gpus <= active_runs[one.run.record].gpus for one in now)
        _assert_later_runs_whole(now, list(active_runs.values()))


def _assert_later_runs_whole(now: list[Borrowed], active_runs: list[QueueRun]) -> None:
    by_run = {one.run.record: one.gpus for one in now}
    for one in now:
        for run in active_runs:
            if run.started > one.run.started:
                assert by_run.get(run.record) == run.gpus
