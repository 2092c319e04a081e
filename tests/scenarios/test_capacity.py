"""What Op's nodes had to give, so that idle and down can be told from use."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from clusters import capacity
from clusters.capacity import CapacityError, ModelCapacity
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import CapacityInterval, Cluster
from tests.builders import a_cluster, at
from tests.schedulers import Scheduler, a_connection

pytestmark = pytest.mark.django_db

UP, DRAINED, DOWN = NodeState.UP, NodeState.DRAINED, NodeState.DOWN


def node(name: str, state: NodeState = UP, *, gpus: int = 4, model: str = "a100") -> NodeSeen:
    return NodeSeen(name=name, gpu_model=model, gpus=gpus, state=state)


def intervals(cluster: Cluster) -> list[tuple[str, str, int, str, str]]:
    """(node, state, GPUs, since, until), by node and time."""

    def clock(second: int | None) -> str:
        return "" if second is None else f"{(second - int(at('2026-03-01').timestamp())) // 60} min"

    rows = CapacityInterval.objects.filter(cluster=cluster).order_by("node", "gpu_model", "since")
    return [(row.node, row.state, row.gpus, clock(row.since), clock(row.until)) for row in rows]


def test_a_node_that_is_drained_and_comes_back_leaves_three_intervals() -> None:
    cluster = a_cluster()
    for moment, state in (
        ("00:00", UP),
        ("00:05", UP),
        ("00:10", DRAINED),
        ("00:15", DRAINED),
        ("00:20", UP),
    ):
        capacity.observe(cluster, [node("gpu1", state)], at(f"2026-03-01 {moment}"))
    assert intervals(cluster) == [
        ("gpu1", "up", 4, "0 min", "10 min"),
        ("gpu1", "drained", 4, "10 min", "20 min"),
        ("gpu1", "up", 4, "20 min", ""),
    ]


def test_the_same_again_writes_nothing() -> None:
    cluster = a_cluster()
    assert capacity.observe(cluster, [node("gpu1"), node("gpu2", DOWN)], at("2026-03-01")) == 2
    assert capacity.observe(cluster, [node("gpu2", DOWN), node("gpu1")], at("2026-03-01")) == 0
    assert capacity.observe(cluster, [node("gpu1"), node("gpu2", DOWN)], at("2026-03-01 01:00")) == 0


def test_a_node_that_is_not_told_any_more_is_gone_and_a_new_one_begins() -> None:
    cluster = a_cluster()
    capacity.observe(cluster, [node("gpu1"), node("gpu2")], at("2026-03-01"))
    capacity.observe(cluster, [node("gpu2"), node("gpu3", gpus=8)], at("2026-03-01 00:05"))
    assert intervals(cluster) == [
        ("gpu1", "up", 4, "0 min", "5 min"),
        ("gpu2", "up", 4, "0 min", ""),
        ("gpu3", "up", 8, "5 min", ""),
    ]
    capacity.observe(cluster, [], at("2026-03-01 00:10"))
    assert capacity.now(cluster) == []


def test_two_models_in_one_node_and_a_broken_gpu_are_told_apart() -> None:
    cluster = a_cluster()
    capacity.observe(cluster, [node("gpu1"), node("gpu1", model="t4", gpus=2)], at("2026-03-01"))
    capacity.observe(
        cluster, [node("gpu1", gpus=3), node("gpu1", model="t4", gpus=2)], at("2026-03-01 00:05")
    )
    assert [row[2:] for row in intervals(cluster)] == [
        (4, "0 min", "5 min"),
        (3, "5 min", ""),
        (2, "0 min", ""),
    ]


def test_within_one_second_the_last_look_holds() -> None:
    cluster = a_cluster()
    capacity.observe(cluster, [node("gpu1")], at("2026-03-01"))
    capacity.observe(cluster, [node("gpu1", DOWN)], at("2026-03-01"))
    assert intervals(cluster) == [("gpu1", "down", 4, "0 min", "")]


def test_an_older_look_is_refused() -> None:
    cluster = a_cluster()
    capacity.observe(cluster, [node("gpu1")], at("2026-03-01 00:05"))
    with pytest.raises(CapacityError, match="The nodes of gpu1 were seen 300 s later than this already"):
        capacity.observe(cluster, [node("gpu1", DOWN)], at("2026-03-01"))
    assert intervals(cluster) == [("gpu1", "up", 4, "5 min", "")]


def test_what_is_there_now_is_counted_by_model_and_state() -> None:
    cluster = a_cluster()
    capacity.observe(
        cluster,
        [node("gpu1"), node("gpu2", DRAINED), node("gpu3"), node("gpu4", DOWN, model="h100", gpus=8)],
        at("2026-03-01"),
    )
    assert capacity.now(cluster) == [ModelCapacity("a100", 8, 4, 0), ModelCapacity("h100", 0, 0, 8)]
    assert capacity.now(cluster)[0].total == 12


def test_a_pass_keeps_the_nodes_that_it_saw() -> None:
    cluster = a_connection().cluster
    slurm = Scheduler(nodes=[node("gpu1"), node("gpu2")])
    slurm.pulled(cluster, "2026-03-01 00:10")
    slurm.nodes = [node("gpu1"), node("gpu2", DOWN)]
    slurm.pulled(cluster, "2026-03-01 00:15")
    slurm.nodes = None  # not told: nothing is known, so nothing ends
    slurm.pulled(cluster, "2026-03-01 00:20")
    assert intervals(cluster) == [
        ("gpu1", "up", 4, "10 min", ""),
        ("gpu2", "up", 4, "10 min", "15 min"),
        ("gpu2", "down", 4, "15 min", ""),
    ]


def test_the_database_itself_refuses_a_node_in_two_states() -> None:
    fields = {"cluster": a_cluster(), "node": "gpu1", "gpu_model": "a100", "gpus": 4}
    CapacityInterval.objects.create(**fields, state="up", since=100, until=200)
    for state, since, until, name in (
        ("down", 150, None, "capacity_is_in_one_state_at_a_time"),
        ("down", 300, 300, "capacity_ends_after_it_starts"),
        ("odd", 300, 400, "capacity_state_is_known"),
    ):
        with pytest.raises(IntegrityError, match=name), transaction.atomic():
            CapacityInterval.objects.create(**fields, state=state, since=since, until=until)
    CapacityInterval.objects.create(**fields, state="down", since=200)
