"""A vGPU of HAMi is a part of its GPU, exactly: by cores, by memory, or by the larger of the two.

By HAMi's published definitions (docs/config.md and pkg/device/nvidia/device.go of Project-HAMi/HAMi, as its users write
them: `nvidia.com/gpu` vGPUs, of each `nvidia.com/gpucores` percent, `nvidia.com/gpumem` MiB, else
`nvidia.com/gpumem-percentage`), as kube-state-metrics spells them. They stand in a real Prometheus; no cluster with
HAMi was at hand.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from clusters.connectors.base import BadRow, NodeSeen, Row, UsageFact
from clusters.connectors.findings import Level
from clusters.connectors.prometheus import Scope, Utilisation
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.prometheus.options import Hami
from tests.contracts.prometheus_reading import connector, findings_of, present
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

story = Stories()
CORES, MEMORY, PERCENTAGE = "nvidia_com_gpucores", "nvidia_com_gpumem", "nvidia_com_gpumem_percentage"
VGPU = "nvidia_com_gpu"
GIB24 = "24576"  # MiB of a GPU of n-1; n-2 does not tell it
REQUESTED: dict[tuple[str, str], dict[str, float]] = {
    ("cores", "main"): {VGPU: 1, CORES: 30},
    ("mib", "main"): {VGPU: 2, MEMORY: 3000},
    ("percent", "main"): {VGPU: 1, PERCENTAGE: 25},
    ("both", "main"): {VGPU: 1, CORES: 30, MEMORY: 18432, PERCENTAGE: 10},
    ("whole", "main"): {VGPU: 2},
    ("zeros", "main"): {VGPU: 1, CORES: 0, MEMORY: 0},
    ("parts", "a"): {VGPU: 1, CORES: 20},
    ("parts", "b"): {VGPU: 1, CORES: 50},
    ("beside", "main"): {VGPU: 1, CORES: 40},
    ("more", "main"): {VGPU: 1, CORES: 101},
    ("virtual", "main"): {VGPU: 1, MEMORY: 30000},
    ("elsewhere", "main"): {VGPU: 1, MEMORY: 3000},
}
OF_INIT_CONTAINERS: dict[tuple[str, str], dict[str, float]] = {
    ("alone", "warm"): {VGPU: 2, CORES: 10},
    ("beside", "warm"): {VGPU: 2, CORES: 90},  # given back before `main` starts
}


@story
def _pods(worlds: Worlds) -> None:
    world = worlds.new("hami")
    for node, memory, gpus in (("n-1", GIB24, "4"), ("n-2", "", "")):
        known = {"product": "NVIDIA-A10", "memory": memory, "count": gpus}
        labels = {f"label_nvidia_com_gpu_{name}": value for name, value in known.items() if value}
        world.series("kube_node_labels", {"node": node, **labels}, [(0, None, 1)])
        vgpus = {"node": node, "resource": VGPU, "unit": "integer"}  # ten of each GPU
        for metric in ("kube_node_status_capacity", "kube_node_status_allocatable"):
            world.series(metric, vgpus, [(0, None, 40)])
    for pod in {pod for pod, _ in {**REQUESTED, **OF_INIT_CONTAINERS}}:
        world.pod(pod, since=60, containers=(), node="n-2" if pod == "elsewhere" else "n-1")
    metrics: tuple[tuple[str, dict[tuple[str, str], dict[str, float]]], ...] = (
        ("kube_pod_container_resource_requests", REQUESTED),
        ("kube_pod_init_container_resource_requests", OF_INIT_CONTAINERS),
    )
    for metric, requested in metrics:
        for (pod, container), counts in requested.items():
            identity = {"namespace": "team", "pod": pod, "uid": world.uid(pod), "container": container}
            for resource, count in counts.items():
                placed = {"node": "n-2" if pod == "elsewhere" else "n-1", "resource": resource}
                world.series(metric, {**identity, **placed, "unit": "integer"}, [(60, None, count)])


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def read(worlds: Worlds, by: Hami) -> tuple[list[Row], list[NodeSeen]]:
    source = connector(
        worlds.url, matcher='cluster="hami"', utilisation=Utilisation(scope=Scope.OFF), hami=by
    )
    rows = list(source.usage(since=worlds.begin, until=worlds.begin + World.LENGTH - 600, open_keys=()))
    assert source.reading.nodes is not None
    return rows, source.reading.nodes


def gpus(rows: list[Row]) -> dict[str, Fraction]:
    """By pod: GPUs that its vGPUs are together."""
    held: dict[str, Fraction] = {}
    for row in rows:
        if isinstance(row, UsageFact):
            pod = row.job_id.removeprefix("team/")
            held[pod] = held.get(pod, Fraction(0)) + row.gpus * Fraction(*row.gpu_share)
    return held


def kept_aside(rows: list[Row]) -> dict[str, str]:
    return {row.source_key.split("/")[0]: row.code for row in rows if isinstance(row, BadRow)}


def test_by_cores_then_by_memory(worlds: Worlds) -> None:
    rows, _ = read(worlds, Hami.CORES)
    assert gpus(rows) == {
        "cores": Fraction(3, 10),
        "mib": 2 * Fraction(125, 1024),  # 3,000 of 24,576 MiB each
        "percent": Fraction(1, 4),
        "both": Fraction(3, 10),
        "whole": 2,
        "zeros": 1,
        "parts": Fraction(7, 10),
        "alone": Fraction(1, 5),  # two of a tenth
        "beside": Fraction(2, 5),
    }
    assert kept_aside(rows) == {
        "hami-more": "impossible-fraction",
        "hami-virtual": "impossible-fraction",
        "hami-elsewhere": "unknown-fraction",
    }
    both = next(row for row in rows if isinstance(row, UsageFact) and row.job_id == "team/both")
    assert (both.gpus, both.gpu_share, both.gpu_model) == (1, (3, 10), "a10")
    assert both.requested == (
        "nvidia.com/gpu=1,nvidia.com/gpucores=30,nvidia.com/gpumem=18432,nvidia.com/gpumem-percentage=10"
    )


def test_by_memory_and_by_the_larger_of_the_two(worlds: Worlds) -> None:
    memory, larger = (gpus(read(worlds, by)[0]) for by in (Hami.MEMORY, Hami.LARGER))
    assert memory["mib"] == larger["mib"] == Fraction(125, 512)
    # Of 24 GiB 18, which count before the percentage.
    assert memory["both"] == larger["both"] == Fraction(3, 4)
    assert memory["cores"] == larger["cores"] == 1  # without a request, HAMi gives all of the memory
    assert memory["parts"] == larger["parts"] == 2
    assert "more" not in larger
    assert memory["more"] == 1


def test_off_each_vgpu_is_a_gpu(worlds: Worlds) -> None:
    assert options_from({}).hami is Hami.OFF
    rows, nodes = read(worlds, Hami.OFF)
    held = gpus(rows)
    assert [held[pod] for pod in ("cores", "mib", "parts", "beside")] == [1, 2, 2, 2]
    assert not kept_aside(rows)
    assert {node.name: node.gpus for node in nodes} == {"n-1": 40, "n-2": 40}


def test_a_node_has_its_gpus_and_not_its_vgpus(worlds: Worlds) -> None:
    assert options_from({"hami": "larger"}).hami is Hami.LARGER
    _, nodes = read(worlds, Hami.CORES)
    assert {node.name: node.gpus for node in nodes} == {"n-1": 4}  # what n-2 does not tell is not guessed


@pytest.mark.parametrize(
    ("hami", "level", "words"),
    [
        ("off", Level.WARN, "Each vGPU is billed as a whole GPU."),
        ("cores", Level.OK, "7 nvidia.com/gpucores, 5 nvidia.com/gpumem, 2 nvidia.com/gpumem-percentage."),
    ],
)
def test_the_connection_test_counts_what_pods_request_of_each_vgpu(
    worlds: Worlds, hami: str, level: Level, words: str
) -> None:
    now = worlds.begin + World.LENGTH - 60
    with present(worlds.url, now) as url:
        finding = findings_of(url, now, {"matcher": 'cluster="hami"', "hami": hami})["HAMi"]
    assert (finding.level, finding.sentence.endswith(words)) == (level, True), finding
