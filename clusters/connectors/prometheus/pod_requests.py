"""What pods ask for of CPU and memory, as Kubernetes keeps it of a node for as long as they live.

That is the larger of two: what their containers and sidecars ask for together, and what any other init container asks
for beside the sidecars that are listed before it (kubernetes.io, "Effective Pod requests and limits"). No metric tells
the order of init containers, so that here no sidecar counts beside another one: never more than Kubernetes keeps, and
less only where an init container asks for more than all containers do, and has sidecars before it.

By the published definitions of kube-state-metrics (docs/metrics/workload/pod-metrics.md):
`kube_pod_container_resource_requests` and `kube_pod_init_container_resource_requests`, `cpu` in cores and `memory` in
bytes, and since its release 2.11 `kube_pod_init_container_info`, whose `restart_policy` "Always" is a sidecar. Not yet
seen from a live source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from math import ceil

from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.lifecycle import Life, Window, read_of_pods
from clusters.connectors.prometheus.options import CpuMemory
from clusters.connectors.prometheus.queries import CPU_MEMORY, INIT_INFO, INIT_REQUESTS, REQUESTS, Queries
from clusters.connectors.prometheus.responses import Series, first

MIB = 1 << 20
LARGEST = Decimal(2**53)  # of a number that a sample can hold exactly: beyond it nothing is meant


@dataclass(frozen=True, slots=True)
class CpuAndMemory:
    """Of one pod, as requested. Parts of a unit count as one."""

    cpu_milli: int = 0
    memory_mib: int = 0


def requests_of(
    client: PrometheusClient, queries: Queries, window: Window, gate: str, lives: Mapping[str, Life]
) -> dict[str, CpuAndMemory]:
    """By uid; a pod that asks for nothing is left out. Raises `ConnectorError`."""
    if queries.options.cpu_memory is CpuMemory.OFF:
        return {}

    read = partial(read_of_pods, client, queries, window, gate, lives)

    def requests(metric: str) -> dict[tuple[str, str], dict[str, Decimal]]:
        return _by_pod(
            read(metric, lambda some, by, seconds: some.cpu_memory(metric, by, seconds)),
            queries,
        )

    together = {at: sum(values.values(), Decimal(0)) for at, values in requests(REQUESTS).items()}
    initial = requests(INIT_REQUESTS)
    sidecars = sidecars_in(read(INIT_INFO, Queries.sidecars), queries) if initial else frozenset()
    for at, values in initial.items():
        of_sidecars = {name: value for name, value in values.items() if (at[0], name) in sidecars}
        held = sum(of_sidecars.values(), together.get(at, Decimal(0)))
        together[at] = max(
            held, *(value for name, value in values.items() if name not in of_sidecars), Decimal(0)
        )
    cpu, memory = CPU_MEMORY
    return {
        uid: CpuAndMemory(
            ceil(together.get((uid, cpu), Decimal(0)) * 1000),
            ceil(together.get((uid, memory), Decimal(0)) / MIB),
        )
        for uid in {uid for uid, _ in together}
    }


def sidecars_in(series: Iterable[Series], queries: Queries) -> frozenset[tuple[str, str]]:
    """Uids of pods with the names of their containers."""
    spellings = queries.options.labels.spellings("container")
    return frozenset((one.metric.get("uid", ""), first(one.metric, spellings)) for one in series)


def _by_pod(series: Iterable[Series], queries: Queries) -> dict[tuple[str, str], dict[str, Decimal]]:
    """By uid and resource, what each container asks for; replicas and renamed labels fall into one."""
    spellings = queries.options.labels.spellings("container")
    requests: dict[tuple[str, str], dict[str, Decimal]] = {}
    for one in series:
        if one.value is None or not one.value[1].is_finite() or not 0 < one.value[1] <= LARGEST:
            continue
        containers = requests.setdefault((one.metric.get("uid", ""), one.metric.get("resource", "")), {})
        container = first(one.metric, spellings)
        containers[container] = max(containers.get(container, Decimal(0)), one.value[1])
    return requests
