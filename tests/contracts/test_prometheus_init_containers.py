"""GPUs that init containers ask for are held as long as the pod is, once, beside what its containers hold.

The series are those that kube-state-metrics publishes in docs/metrics/workload/pod-metrics.md:
`kube_pod_init_container_resource_requests{namespace,pod,uid,container,node,resource,unit}` and
`kube_pod_init_container_info{namespace,pod,uid,container,image,…,restart_policy}`, where "Always" is a sidecar. The
rule is that of kubernetes.io, "Effective Pod requests and limits". They stand in a real Prometheus; no cluster with
such pods was at hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from clusters.connectors.base import BadRow, Row, UsageFact
from clusters.connectors.prometheus import Scope, Utilisation
from clusters.connectors.prometheus.options import CpuMemory
from tests.contracts.prometheus_reading import connector, findings_of, present
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

story = Stories()
GPU, SLICE = "nvidia_com_gpu", "nvidia_com_mig_1g_10gb"
BEGIN = 60
ENDS = {
    "ends": 1800,
    "deleted": 3000,
}  # the first completes; of the second nothing but its last sample is left
CONTAINERS: dict[str, dict[str, tuple[float, str]]] = {
    "more": {"main": (1, GPU)},
    "less": {"main": (4, GPU)},
    "same": {"a": (2, GPU), "b": (1, GPU)},
    "mesh": {"main": (1, GPU)},
    "kinds": {"main": (1, GPU)},
    "blurred": {"main": (1.5, GPU)},
}
INIT_CONTAINERS: dict[str, dict[str, tuple[float, str]]] = {
    "alone": {"small": (1, GPU), "warm": (2, GPU)},
    "ends": {"warm": (2, GPU)},
    "deleted": {"warm": (1, GPU)},
    "more": {"warm": (4, GPU)},
    "less": {"warm": (2, GPU)},
    "same": {"warm": (3, GPU)},
    "mesh": {"agent": (1, GPU), "warm": (3, GPU)},  # agent is a sidecar
    "kinds": {"warm": (2, SLICE)},
    "odd": {"warm": (1.5, GPU)},
    "blurred": {"warm": (4, GPU)},
    "plain": {"copy": (2, "cpu")},
}


@story
def _pods(worlds: Worlds) -> None:
    world = worlds.new("init")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    for pod in {**CONTAINERS, **INIT_CONTAINERS}:
        end = ENDS.get(pod)
        until = end if pod == "deleted" else None
        phases: list[tuple[int, int | None, str]] = [(BEGIN, end, "Running")]
        phases += [(end, None, "Succeeded")] if end and pod == "ends" else []
        world.pod(pod, since=BEGIN, until=until, containers=(), completed=end if pod == "ends" else None,
                  phases=phases)  # fmt: skip
        for metric, containers in (
            ("kube_pod_container_resource_requests", CONTAINERS.get(pod, {})),
            ("kube_pod_init_container_resource_requests", INIT_CONTAINERS.get(pod, {})),
        ):
            for container, (count, resource) in containers.items():
                _series(world, metric, pod, container, {"node": "n-1", "resource": resource}, until, count)
        for container in INIT_CONTAINERS.get(pod, {}):
            policy = {"restart_policy": "Always" if container == "agent" else "", "image": "busybox"}
            _series(world, "kube_pod_init_container_info", pod, container, policy, until, 1)
    _series(world, "kube_pod_container_resource_requests", "alone", "main",
            {"node": "n-1", "resource": "cpu", "unit": "core"}, None, 3)  # fmt: skip
    waits = {"node": "", "resource": GPU}
    _series(world, "kube_pod_init_container_resource_requests", "waits", "warm", waits, None, 8)


def _series(
    world: World,
    metric: str,
    pod: str,
    container: str,
    labels: dict[str, str],
    until: int | None,
    value: float,
) -> None:
    identity = {"namespace": "team", "pod": pod, "uid": world.uid(pod), "container": container}
    for replica in ({}, {"instance": "second:8080"}):
        world.series(metric, {**identity, **labels, **replica}, [(BEGIN, until, value)])


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def read(worlds: Worlds, **options: Any) -> list[Row]:
    source = connector(
        worlds.url, matcher='cluster="init"', utilisation=Utilisation(scope=Scope.OFF), **options
    )
    return list(source.usage(since=worlds.begin, until=worlds.begin + World.LENGTH - 600, open_keys=()))


def held(rows: list[Row]) -> dict[str, int]:
    """Devices by pod and container."""
    facts = [row for row in rows if isinstance(row, UsageFact)]
    keys = {fact.source_key.replace("init-", "", 1).rpartition("/")[0]: fact.gpus for fact in facts}
    assert len(keys) == len(facts)
    return keys


HELD = {
    "alone/warm": 2,  # the larger of the two, which run one after the other
    "ends/warm": 2,
    "deleted/warm": 1,
    "more/main": 1,
    "more/warm": 3,  # four in all
    "less/main": 4,
    "same/a": 2,
    "same/b": 1,
    "mesh/main": 1,
    "mesh/agent": 1,
    "mesh/warm": 1,  # three in all; four if the sidecar is listed before it, which no metric tells
    "kinds/main": 1,
    "kinds/warm": 2,
}


def test_a_pod_holds_what_kubernetes_keeps_for_it(worlds: Worlds) -> None:
    rows = read(worlds)
    assert held(rows) == HELD
    facts = {fact.job_id.removeprefix("team/"): fact for fact in rows if isinstance(fact, UsageFact)}
    assert (facts["alone"].cpu_milli, facts["alone"].requested) == (3_000, "nvidia.com/gpu=2")
    slices = next(fact for fact in rows if isinstance(fact, UsageFact) and fact.mig_profile)
    assert (slices.gpus, slices.gpu_share, slices.job_id) == (2, (1, 7), "team/kinds")


def test_they_are_held_until_the_pod_ends_and_not_until_they_are_initialized(worlds: Worlds) -> None:
    facts = {fact.job_id.removeprefix("team/"): fact for fact in read(worlds) if isinstance(fact, UsageFact)}
    begin = worlds.begin
    assert (facts["ends"].started, facts["ends"].ended) == (begin + BEGIN, begin + 1800)
    assert facts["ends"].state == "Succeeded"
    assert facts["deleted"].ended is not None
    assert 2970 <= facts["deleted"].ended - begin <= 3000  # to a scrape
    assert facts["alone"].ended is None
    assert facts["alone"].seen_until == begin + World.LENGTH - 600


def test_a_count_that_is_none_is_kept_aside_and_nothing_is_told_beyond_it(worlds: Worlds) -> None:
    bad = {row.source_key: row.code for row in read(worlds) if isinstance(row, BadRow)}
    assert bad == {
        "init-odd/warm/nvidia_com_gpu": "impossible-devices",
        "init-blurred/main/nvidia_com_gpu": "impossible-devices",
    }


def test_pods_without_devices_are_runs_by_their_init_containers_too(worlds: Worlds) -> None:
    rows = read(worlds, cpu_memory=CpuMemory.ALL)
    assert held(rows) == {**HELD, "plain/": 0}
    plain = next(row for row in rows if isinstance(row, UsageFact) and row.job_id == "team/plain")
    assert plain.cpu_milli == 2_000


def test_the_connection_test_counts_pods_whose_init_containers_ask_for_devices(worlds: Worlds) -> None:
    now = worlds.begin + World.LENGTH - 60
    with present(worlds.url, now) as url:
        finding = findings_of(url, now, {"matcher": 'cluster="init"'})["Pods"]
    # `deleted` is gone before the last hour; `plain` and `waits` hold none.
    assert finding.sentence.startswith(
        "Of 9 pods with devices in the last hour, 9 request them by init containers, 0 tell their owner, "
    )
