"""What clusters do beside the rule: each alone in a small cluster, in a real Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from clusters.connectors.base import BadRow, ConnectorError, NodeSeen, NodeState, Row, UsageFact
from clusters.connectors.prometheus import ChargeFrom, PrometheusConnector, Scope, Utilisation
from tests.contracts.prometheus_reading import connector, present
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

H100 = "NVIDIA-H100-80GB-HBM3"
UNASKED = Utilisation(scope=Scope.OFF)  # these clusters have no DCGM
story = Stories()


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def _read(
    worlds: Worlds,
    name: str,
    until: int = World.LENGTH - 600,
    open_keys: Sequence[str] = (),
    url: str = "",
    **options: Any,
) -> tuple[dict[str, Row], PrometheusConnector, int]:
    """Rows by the pod's name and container, the connector after its pass, and the world's beginning."""
    arguments = {"utilisation": UNASKED, **options}
    source = connector(url or worlds.url, matcher=f'cluster="{name}"', **arguments)
    begin = worlds.begin
    rows = source.usage(since=begin, until=begin + until, open_keys=open_keys)
    return (
        {"/".join(row.source_key.removeprefix(f"{name}-").split("/")[:2]): row for row in rows},
        source,
        begin,
    )


def _fact(row: Row) -> UsageFact:
    assert isinstance(row, UsageFact), row
    return row


@story
def _sidecar(worlds: Worlds) -> None:
    world = worlds.new("sidecar")
    world.node("n-1", product=H100)
    world.pod("trains", since=100, completed=1000)


def test_a_finished_sidecar_does_not_end_its_pod(worlds: Worlds) -> None:
    rows, _, begin = _read(worlds, "sidecar")
    fact = _fact(rows["trains/main"])
    assert (fact.started, fact.ended, fact.state) == (begin + 100, None, "Running")
    assert fact.seen_until == begin + World.LENGTH - 600


@story
def _evicted(worlds: Worlds) -> None:
    world = worlds.new("evicted")
    world.node("n-1", product=H100)
    world.pod("evicted", since=100, phases=[(100, 1800, "Running"), (1800, None, "Failed")])


def test_an_evicted_pod_without_a_completion_time_ends_where_it_last_ran(worlds: Worlds) -> None:
    rows, _, begin = _read(worlds, "evicted")
    fact = _fact(rows["evicted/main"])
    assert fact.state == "Failed"
    assert fact.ended is not None
    assert begin + 1770 <= fact.ended <= begin + 1800
    key = fact.source_key
    source = connector(worlds.url, matcher='cluster="evicted"')
    later = list(source.usage(since=begin + 3600, until=begin + 5400, open_keys=[]))
    assert later == []  # it held nothing in that time
    assert list(source.usage(since=begin + 3600, until=begin + 5400, open_keys=[key])) == [fact]


@story
def _exported(worlds: Worlds) -> None:
    for replica in ("ksm-a", "ksm-b"):
        world = worlds.new(
            "exported" if replica == "ksm-a" else "exported-b",
            namespace="monitoring", pod=replica, container="kube-state-metrics",
        )  # fmt: skip
        world.node("n-1", product=H100)
        world.pod("trains", since=100, until=3000, exported=True)


def test_labels_under_their_exported_names_are_found_and_count_once(worlds: Worlds) -> None:
    source = connector(worlds.url, matcher='cluster=~"exported(-b)?"')
    begin = worlds.begin
    rows = [_fact(row) for row in source.usage(since=begin, until=begin + 6600, open_keys=())]
    assert {(row.account, row.job_id, row.gpus, row.source_key.split("/")[1]) for row in rows} == {
        ("team", "team/trains", 1, "main")
    }
    assert len(rows) == 2  # the same pod under two names of its cluster here, so two uids


@story
def _unscheduled(worlds: Worlds) -> None:
    world = worlds.new("no-times")
    world.node("n-1", product=H100)
    world.pod("trains", since=400, until=5000, scheduled=-1)


@pytest.mark.parametrize("first", [0, 2000])
def test_without_its_scheduled_time_a_pod_counts_from_its_first_sample(worlds: Worlds, first: int) -> None:
    begin = worlds.begin
    source = connector(worlds.url, matcher='cluster="no-times"', utilisation=UNASKED)
    (row,) = source.usage(since=begin + first, until=begin + 6600, open_keys=())
    fact = _fact(row)
    assert fact.started is not None
    assert begin + 400 <= fact.started <= begin + 430
    (note,) = source.reading.notes
    assert note.startswith(
        "1 pod without kube_pod_status_scheduled_time is billed from the first sample: team/trains."
    )


@story
def _phases(worlds: Worlds) -> None:
    world = worlds.new("no-phases")
    world.node("n-1", product=H100)
    world.pod("trains", phases=[])


def test_without_phases_nothing_is_read(worlds: Worlds) -> None:
    with pytest.raises(
        ConnectorError, match="has no kube_pod_status_phase: without it, pods that have ended cannot"
    ):
        _read(worlds, "no-phases")


@story
def _relabelled(worlds: Worlds) -> None:
    world = worlds.new("relabelled")
    world.node("n-1", until=3600, product="NVIDIA-A100-SXM4-40GB-MIG-1g.5gb")
    world.node("n-1", since=3700, product="NVIDIA-A100-SXM4-40GB-MIG-3g.20gb")
    world.pod("before", since=100, until=3000)
    world.pod("after", since=4000, until=5000)


def test_a_node_cut_anew_gives_each_pod_the_shape_of_its_time(worlds: Worlds) -> None:
    rows, _, _ = _read(worlds, "relabelled")
    assert _fact(rows["before/main"]).gpu_share == (1, 7)
    assert _fact(rows["after/main"]).gpu_share == (3, 7)


@story
def _bare(worlds: Worlds) -> None:
    worlds.new("bare").pod("trains", until=3000)


def test_a_node_without_labels_is_told_of_with_the_flag_to_set(worlds: Worlds) -> None:
    rows, source, _ = _read(worlds, "bare")
    assert _fact(rows["trains/main"]).gpu_model == ""
    (note,) = source.reading.notes
    assert note.startswith("The GPU model of n-1 is not known")
    assert note.endswith("--metric-labels-allowlist=nodes=[nvidia.com/*].")


@story
def _unknown(worlds: Worlds) -> None:
    world = worlds.new("unknown-share")
    world.node("n-1", product=H100)
    world.pod("shares", until=3000, resource="nvidia_com_gpu_shared")
    world.pod("whole", until=3000)


def test_a_share_that_cannot_be_told_is_set_aside_and_the_rest_is_billed(worlds: Worlds) -> None:
    rows, source, _ = _read(worlds, "unknown-share")
    bad = rows["shares/main"]
    assert isinstance(bad, BadRow)
    assert (bad.code, bad.source_key) == (
        "unknown-replicas",
        "unknown-share-shares/main/nvidia_com_gpu_shared",
    )
    assert "does not say among how many" in bad.reason
    assert _fact(rows["whole/main"]).ended is not None
    assert source.reading.complete_through is not None


@story
def _containers(worlds: Worlds) -> None:
    world = worlds.new("containers")
    world.node("n-1", product=H100)
    world.pod("two", until=3000, containers=("left", "right"))


def test_each_container_with_devices_is_a_row(worlds: Worlds) -> None:
    rows, _, _ = _read(worlds, "containers")
    assert sorted(rows) == ["two/left", "two/right"]


@story
def _pulls(worlds: Worlds) -> None:
    world = worlds.new("pulls")
    world.node("n-1", product=H100)
    world.pod("slow", since=100, until=3000, started=400)
    world.pod("pulling", since=100)


def test_pods_are_charged_from_their_start_where_the_operator_says_so(worlds: Worlds) -> None:
    rows, _, begin = _read(worlds, "pulls")
    assert _fact(rows["slow/main"]).started == begin + 100
    rows, _, begin = _read(worlds, "pulls", charge_from=ChargeFrom.STARTED)
    assert _fact(rows["slow/main"]).started == begin + 400
    assert "pulling/main" not in rows


@story
def _memory(worlds: Worlds) -> None:
    world = worlds.new("gpu-memory")
    world.node("n-1", product=H100, memory="80000")
    for name, pod_annotations in (("part", {"annotation_gpu_memory": "20000"}),
                       ("two", {"annotation_gpu_fraction": "0.25", "annotation_gpu_fraction_num_devices": "2"}),
                       ("many", {"annotation_gpu_fraction": "0.5",
                                 "annotation_gpu_fraction_num_devices": "9" * 5000}),
                       ("odd", {"annotation_gpu_fraction": "lots"})):  # fmt: skip
        world.pod(name, until=3000, containers=())
        labels = {"namespace": "team", "pod": name, "uid": world.uid(name), **pod_annotations}
        world.series("kube_pod_annotations", labels, [(0, 3000, 1)])


def test_parts_of_gpus_by_annotation(worlds: Worlds) -> None:
    rows, _, begin = _read(worlds, "gpu-memory")
    part, two, odd = _fact(rows["part/"]), _fact(rows["two/"]), rows["odd/"]
    assert (part.gpus, part.gpu_share, part.requested) == (1, (1, 4), "gpu-memory=20000")
    assert (two.gpus, two.gpu_share, two.gpu_model) == (2, (1, 4), "h100-80gb-hbm3")
    assert part.ended is not None
    assert begin + 2970 <= part.ended <= begin + 3000
    assert isinstance(odd, BadRow)
    assert isinstance(rows["many/"], BadRow)
    assert rows["many/"].code == "impossible-devices"


@story
def _states(worlds: Worlds) -> None:
    world = worlds.new("nodes")
    for name in ("n-1", "n-2", "n-3"):
        world.node(name, product=H100)
        labels = {"node": name, "condition": "Ready", "status": "true"}
        world.series("kube_node_status_condition", labels, [(0, None, float(name != "n-3"))])
        world.series("kube_node_spec_unschedulable", {"node": name}, [(0, None, float(name == "n-2"))])
    world.series(
        "kube_node_status_allocatable",
        {"node": "n-4", "resource": "nvidia_com_gpu", "unit": "integer"},
        [(0, None, 7)],
    )
    world.series(
        "kube_node_labels", {"node": "n-4", "label_nvidia_com_gpu_product": "NVIDIA-L4"}, [(0, None, 1)]
    )
    world.series(
        "kube_node_status_capacity",
        {"node": "n-4", "resource": "nvidia_com_gpu", "unit": "integer"},
        [(0, None, 8)],
    )


def test_nodes_are_up_drained_or_down_and_broken_gpus_do_not_count(worlds: Worlds) -> None:
    _, source, _ = _read(worlds, "nodes")
    model = "h100-80gb-hbm3"
    assert source.reading.nodes == [
        NodeSeen(name="n-1", gpu_model=model, gpus=8, state=NodeState.UP),
        NodeSeen(name="n-2", gpu_model=model, gpus=8, state=NodeState.DRAINED),
        NodeSeen(name="n-3", gpu_model=model, gpus=8, state=NodeState.DOWN),
        NodeSeen(name="n-4", gpu_model="l4", gpus=7, state=NodeState.UP),
    ]


@story
def _silent(worlds: Worlds) -> None:
    """Without `up`, as remote writers may leave it out; kube-state-metrics is gone for half an hour."""
    world = worlds.new("silent", down=[(1800, 3600)], up=False)
    world.node("n-1", product=H100)
    world.pod("stays", since=100)
    world.pod("goes", since=100, until=2400)


def test_an_outage_shows_without_up_and_ends_nobody_while_it_lasts(worlds: Worlds) -> None:
    with present(worlds.url, worlds.begin + 3500) as url:
        rows, source, begin = _read(worlds, "silent", until=2900, url=url)
    assert _fact(rows["stays/main"]).ended is None
    assert _fact(rows["goes/main"]).ended is None
    through = source.reading.complete_through
    assert through is not None
    assert begin + 1600 <= through <= begin + 1800
    open_keys = [row.source_key for row in rows.values()]
    rows, source, begin = _read(worlds, "silent", open_keys=open_keys)
    goes = _fact(rows["goes/main"])
    assert goes.state == "Unknown (estimated end)"
    assert goes.ended is not None
    assert begin + 1770 <= goes.ended <= begin + 1800
    assert _fact(rows["stays/main"]).ended is None
    assert [hour.covered < hour.read for hour in source.reading.incomplete] == [True]


@story
def _quiet(worlds: Worlds) -> None:
    worlds.new("quiet").node("n-1", product=H100)


def test_a_cluster_without_a_pod_is_read_all_the_same(worlds: Worlds) -> None:
    rows, source, begin = _read(worlds, "quiet")
    assert rows == {}
    assert source.reading.complete_through == begin + World.LENGTH - 600
    assert [node.gpus for node in source.reading.nodes or ()] == [8]


def test_a_matcher_that_fits_nothing_is_told_of(worlds: Worlds) -> None:
    with pytest.raises(ConnectorError, match="has no series of kube-state-metrics between") as error:
        _read(worlds, "nowhere")
    assert error.value.retry
