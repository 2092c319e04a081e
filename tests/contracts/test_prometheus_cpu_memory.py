"""A pod's CPU and memory are what it asked for, once, whichever of its containers holds the devices.

The series are those that kube-state-metrics publishes in docs/metrics/workload/pod-metrics.md:
`kube_pod_container_resource_requests` and `kube_pod_init_container_resource_requests{namespace,pod,uid,container,node,
resource,unit}`, in cores and bytes, and `kube_pod_init_container_info{namespace,pod,uid,container,image,…,
restart_policy}`. They stand in a real Prometheus; no cluster of these operators was at hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from clusters.connectors.base import UsageFact
from clusters.connectors.findings import Finding, Level
from clusters.connectors.prometheus import Scope, Utilisation
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.prometheus.options import CpuMemory
from tests.contracts.prometheus_reading import connector, findings_of, present
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

story = Stories()
GIB = 1 << 30
ASKED = (  # pod, container, whether it initializes the pod, cores, bytes
    ("train", "main", False, 8, 64 * GIB),
    ("train", "log", False, 0.1, 100_000_000),
    ("train", "fetch", True, 16, GIB),  # more CPU than all others together, and less memory
    ("train", "check", True, 1, GIB),
    ("two", "a", False, 1, GIB),
    ("two", "b", False, 1.5, GIB),
    ("over", "main", False, 4, 8 * GIB),
    ("api", "web", False, 0.25, GIB // 2),
    ("api", "proxy", False, 0.05, GIB // 2),
    ("half", "main", False, 2, GIB),
    ("endless", "main", False, float("inf"), 2 * GIB),
    ("mesh", "main", False, 2, 4 * GIB),
    ("mesh", "proxy", True, 0.5, GIB),  # a sidecar, as the next one
    ("mesh", "logs", True, 0.25, GIB // 2),
    ("mesh", "fetch", True, 2.5, 8 * GIB),  # less CPU than all that stays, and more memory
    ("mesh", "odd", True, float("nan"), GIB),
    ("beside", "proxy", True, 1, GIB),  # a sidecar, whose container itself asks for nothing
)
SIDECARS = (("mesh", "proxy"), ("mesh", "logs"), ("beside", "proxy"))


@story
def _pods(worlds: Worlds) -> None:
    world = worlds.new("cpu")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3", memory="81559")
    ends = {"over": 1800}
    for pod, containers in (
        ("train", ("main",)),
        ("two", ("a", "b")),
        ("over", ("main",)),
        ("endless", ("main",)),
        ("mesh", ("main",)),
        ("beside", ("main",)),
    ):
        end = ends.get(pod)
        over = [] if end is None else [(end, 2400, "Succeeded")]
        until = None if end is None else 2400
        world.pod(pod, since=60, until=until, containers=containers, completed=end,
                  phases=[(60, end, "Running"), *over])  # fmt: skip
    world.pod("api", since=60, containers=())
    world.pod("half", since=60, containers=())
    part = {"namespace": "team", "pod": "half", "uid": world.uid("half"), "annotation_gpu_fraction": "0.5"}
    world.series("kube_pod_annotations", part, [(60, None, 1)])
    for replica in ({}, {"instance": "second:8080"}):
        for pod, container, initializes, cores, size in ASKED:
            metric = f"kube_pod_{'init_' if initializes else ''}container_resource_requests"
            until = 2400 if pod in ends else None
            labels = {
                "namespace": "team",
                "pod": pod,
                "uid": world.uid(pod),
                "container": container,
                "node": "n-1",
            }
            for resource, unit, value in (("cpu", "core", cores), ("memory", "byte", size)):
                kind = {"resource": resource, "unit": unit, **replica}
                world.series(metric, {**labels, **kind}, [(60, until, value)])
    for pod, container in {(pod, container) for pod, container, initializes, *_ in ASKED if initializes}:
        policy = "Always" if (pod, container) in SIDECARS else ""
        labels = {"namespace": "team", "pod": pod, "uid": world.uid(pod), "container": container}
        world.series(
            "kube_pod_init_container_info",
            {**labels, "image": "busybox", "restart_policy": policy},
            [(60, None, 1)],
        )
    waits = {"namespace": "team", "pod": "waits", "uid": world.uid("waits"), "container": "main", "node": ""}
    world.series(
        "kube_pod_container_resource_requests", {**waits, "resource": "cpu", "unit": "core"}, [(60, None, 1)]
    )


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def read(worlds: Worlds, **options: Any) -> dict[str, tuple[int, int, int]]:
    """By pod and container: devices, thousandths of a core, MiB."""
    source = connector(
        worlds.url, matcher='cluster="cpu"', utilisation=Utilisation(scope=Scope.OFF), **options
    )
    rows = list(source.usage(since=worlds.begin, until=worlds.begin + World.LENGTH - 600, open_keys=()))
    facts = [row for row in rows if isinstance(row, UsageFact)]
    assert rows == facts
    return {
        f"{fact.job_id.removeprefix('team/')}/{fact.source_key.split('/')[1]}": (
            fact.gpus, fact.cpu_milli, fact.memory_mib,
        )
        for fact in facts
    }  # fmt: skip


DEVICES = {
    "train/main": (1, 16_000, 65_632),  # 64 GiB and 95.4 MiB, whose part of a MiB counts as one
    "two/a": (1, 2_500, 2_048),
    "two/b": (1, 0, 0),
    "over/main": (1, 4_000, 8_192),
    "half/": (1, 2_000, 1_024),
    "endless/main": (1, 0, 2_048),  # a number that is none is nothing that was asked for
    "mesh/main": (1, 2_750, 8_192),  # 2 + 0.5 + 0.25 cores; of memory 4 + 1 + 0.5 GiB are less than 8
    "beside/main": (1, 1_000, 1_024),
}


@pytest.mark.sample
def test_a_pod_with_devices_has_what_all_its_containers_ask_for_in_one_of_its_records(worlds: Worlds) -> None:
    assert read(worlds) == DEVICES
    assert read(worlds, cpu_memory=CpuMemory.OFF) == {
        pod: (gpus, 0, 0) for pod, (gpus, _, _) in DEVICES.items()
    }


def test_pods_without_devices_are_runs_where_the_operator_wants_them(worlds: Worlds) -> None:
    assert options_from({"cpu_memory": "all"}).cpu_memory is CpuMemory.ALL
    assert read(worlds, cpu_memory=CpuMemory.ALL) == {**DEVICES, "api/": (0, 300, 1_024)}


def test_the_connection_test_counts_pods_that_ask_for_cpu_and_memory(worlds: Worlds) -> None:
    now = worlds.begin + 3000
    with present(worlds.url, now) as url:
        finding = findings_of(url, now, {"matcher": 'cluster="cpu"'})["CPU and memory"]
    assert finding == Finding(
        Level.OK,
        "CPU and memory",
        "Of pods that are read in the last hour, 5 request CPU, 5 memory, and 3 for init containers; 2 have sidecars "
        "that start as such.",
    )
