"""A Kubernetes cluster whose API server is the stand-in, and the door to it."""

from __future__ import annotations

from typing import Any

from clusters.connectors.kubernetes.acts import KubernetesActs
from clusters.enforcement_plan import SchedulerPort
from clusters.models import ApiServer, Cluster, ClusterKind, Connection
from clusters.scheduler_clients import kubernetes
from portal.core.vault import seal
from tests.builders import a_cluster
from tests.fakes.kubernetes import TOKEN, StandIn


def a_world(kube: StandIn) -> None:
    """Vision has two namespaces' worth of queues and speech one; batch has no queue. Nodes have GPUs and slices."""
    kube.node("gpu1", {"nvidia.com/gpu": "8", "cpu": "96"})
    kube.node("gpu2", {"nvidia.com/mig-1g.5gb": "7"})
    kube.node("cpu1", {"cpu": "64"})
    for name in ("vision", "speech", "batch"):
        kube.namespace(name, **{"billing.example.org/tenant": "acme" if name != "speech" else "other"})
    for name in ("research", "shared"):
        kube.cluster_queue(name)
    kube.local_queue("vision", "day", "research")
    kube.local_queue("vision", "night", "shared")
    kube.local_queue("speech", "main", "shared")
    kube.calls.clear()


def connected(
    kube: StandIn, *, options: dict[str, Any] | None = None, token: str = TOKEN, **columns: Any
) -> Cluster:
    """As it rests in the database, for commands, pages and passes."""
    cluster = a_cluster("kube", kind=ClusterKind.PROMETHEUS)
    Connection.objects.get_or_create(
        cluster=cluster, defaults={"base_url": "http://127.0.0.1:9090", "options": options or {}}
    )
    ApiServer.objects.get_or_create(
        cluster=cluster, defaults={"base_url": kube.url, "token": seal(token), **columns}
    )
    return cluster


def a_port(cluster: Cluster) -> SchedulerPort:
    """Patience is short, since the stand-in is quick."""
    return SchedulerPort(cluster, KubernetesActs(kubernetes(cluster=cluster), patience=0))
