"""Which objects of a cluster hold the GPUs of an account, by where usage reads a pod's account from."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from clusters.connectors.acts import ActRefusedError, NoAccountError
from clusters.connectors.kubernetes import faults
from clusters.connectors.kubernetes.api import KUEUE, KubernetesApi
from clusters.connectors.kubernetes.objects import Namespace, Node, Queue, Quota
from clusters.connectors.prometheus.catalog import SAMPLED
from clusters.connectors.prometheus.options import AccountFrom, PrometheusOptions
from portal.excerpt import quoted

QUOTA_NAME = "clustertab-block"
"""The ResourceQuota of ours, one in a namespace."""

CLUSTER_QUEUE = "label_kueue_x_k8s_io_cluster_queue_name"
LOCAL_QUEUES = ("label_kueue_x_k8s_io_local_queue_name", "label_kueue_x_k8s_io_queue_name")
"""Labels of pods, as kube-state-metrics writes them, whose values are names of queues."""

_NOT_A_LETTER = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class QueueObject:
    """A queue of Kueue, and whether it is a ClusterQueue."""

    queue: Queue
    is_cluster: bool = False

    @property
    def kind(self) -> str:
        return "ClusterQueue" if self.is_cluster else "LocalQueue"

    @property
    def title(self) -> str:
        meta = self.queue.metadata
        return f"{self.kind} {meta.name}" if self.is_cluster else f"{self.kind} {meta.namespace}/{meta.name}"

    def path(self, version: str) -> str:
        meta = self.queue.metadata
        if self.is_cluster:
            return f"/apis/{KUEUE}/{version}/clusterqueues/{quote(meta.name, safe='')}"
        namespace, name = quote(meta.namespace, safe=""), quote(meta.name, safe="")
        return f"/apis/{KUEUE}/{version}/namespaces/{namespace}/localqueues/{name}"


@dataclass(frozen=True, slots=True)
class AccountObjects:
    """What holds an account's GPUs: queues are stopped; namespaces without one get a ResourceQuota of ours.

    `namespaces` are all of the account, with the ResourceQuota of our name in each; none where it is a queue.
    """

    queues: tuple[QueueObject, ...] = ()
    namespaces: Mapping[str, Quota | None] = field(default_factory=dict)
    without_queue: frozenset[str] = frozenset()


class AccountLookup:
    """Finds an account's objects. `dedicated`: ClusterQueues that the operator says are one account's alone.

    `with_quota`: namespaces get a ResourceQuota although they have a LocalQueue. Every method raises ConnectorError.
    """

    def __init__(
        self,
        api: KubernetesApi,
        options: PrometheusOptions,
        *,
        dedicated: Collection[str] = (),
        with_quota: bool = False,
    ) -> None:
        self.api = api
        self.options = options
        self._dedicated = frozenset(dedicated)
        self._with_quota = with_quota

    def find(self, account: str) -> AccountObjects:
        """What the account has now. Raises NoAccountError where that is nothing."""
        if self.options.preset in SAMPLED:
            raise ActRefusedError("kubernetes-no-pods", retry=False, preset=self.options.preset)
        label = self.options.account_label
        if self.options.account.source in {AccountFrom.QUEUE, AccountFrom.POD_LABEL}:
            return self._of_queues(account, label)
        names = self._namespaces(account)
        local = self._local_queues(names) if self._has_queues() else []
        queued = {one.metadata.namespace for one in local}
        quotas = {name: self._quota(name) for name in names}
        return AccountObjects(self._held(local), quotas, frozenset(names) - queued)

    def others_in(self, account: str, objects: AccountObjects) -> set[str]:
        """Other accounts whose LocalQueues lead to a ClusterQueue that is stopped for this one."""
        stopped = {one.queue.metadata.name for one in objects.queues if one.is_cluster}
        if not stopped or not objects.namespaces:
            return set()
        users = {
            one.metadata.namespace for one in self._local_queues(None) if one.spec.cluster_queue in stopped
        }
        return self._accounts_of(users - objects.namespaces.keys()) - {account}

    def gpu_resources(self) -> list[str]:
        """What the cluster's nodes call GPUs and MIG slices, of what is billed; nvidia.com/gpu in any case."""
        billed = re.compile(self.options.resources)
        names = {"nvidia.com/gpu"}
        for node in self.api.list("/api/v1/nodes", Node, what="the nodes"):
            names |= {
                name for name in node.status.capacity or () if billed.fullmatch(_NOT_A_LETTER.sub("_", name))
            }
        return sorted(names)

    def list_dedicated(self) -> list[Queue]:
        """ClusterQueues that are said to be one account's alone; none without Kueue."""
        return [self._cluster_queue(name) for name in sorted(self._dedicated)] if self._has_queues() else []

    def _of_queues(self, account: str, label: str) -> AccountObjects:
        if label not in {CLUSTER_QUEUE, *LOCAL_QUEUES}:
            raise ActRefusedError("kubernetes-account-unmapped", retry=False, label=quoted(label))
        if not self.api.kueue:
            raise ActRefusedError("kueue-missing", retry=False, address=self.api.address)
        local = [
            one
            for one in self._local_queues(None)
            if account == (one.spec.cluster_queue if label == CLUSTER_QUEUE else one.metadata.name)
        ]
        if not local:
            raise NoAccountError("kubernetes-no-queue", retry=False, account=quoted(account))
        return AccountObjects(self._held(local) if label == CLUSTER_QUEUE else tuple(map(QueueObject, local)))

    def _has_queues(self) -> bool:
        return not self._with_quota and bool(self.api.kueue)

    def _held(self, local: Iterable[Queue]) -> tuple[QueueObject, ...]:
        """The LocalQueues, or the ClusterQueues instead that the operator gave to the account alone."""
        alone = sorted({one.spec.cluster_queue for one in local} & self._dedicated)
        return (
            *(QueueObject(self._cluster_queue(name), is_cluster=True) for name in alone),
            *(QueueObject(one) for one in local if one.spec.cluster_queue not in alone),
        )

    def _cluster_queue(self, name: str) -> Queue:
        path = f"/apis/{KUEUE}/{self.api.kueue}/clusterqueues/{quote(name, safe='')}"
        return self.api.get(path, Queue, what=f"ClusterQueue {name}")

    def _local_queues(self, namespaces: Collection[str] | None) -> list[Queue]:
        """Those of the namespaces; None: of all."""
        base = f"/apis/{KUEUE}/{self.api.kueue}"
        if namespaces is None:
            queues = list(self.api.list(f"{base}/localqueues", Queue, what="the LocalQueues"))
        else:
            queues = [
                one
                for name in namespaces
                for one in self.api.list(
                    f"{base}/namespaces/{quote(name, safe='')}/localqueues",
                    Queue,
                    what=f"the LocalQueues of {name}",
                )
            ]
        return sorted(queues, key=lambda one: (one.metadata.namespace, one.metadata.name))

    def _namespaces(self, account: str) -> list[str]:
        if self.options.account.source is AccountFrom.NAMESPACE:
            path = f"/api/v1/namespaces/{quote(account, safe='')}"
            return [self.api.get(path, Namespace, what=f"namespace {account}").metadata.name]
        label = self.options.account_label
        names = [one.metadata.name for one in self._all_namespaces() if label_of(one, label) == account]
        if not names:
            raise NoAccountError("kubernetes-no-namespace", retry=False, account=quoted(account), label=label)
        return sorted(names)

    def _all_namespaces(self) -> Iterable[Namespace]:
        return self.api.list("/api/v1/namespaces", Namespace, what="the namespaces")

    def _accounts_of(self, namespaces: Collection[str]) -> set[str]:
        if self.options.account.source is AccountFrom.NAMESPACE:
            return set(namespaces)
        labels = {
            one.metadata.name: label_of(one, self.options.account_label) for one in self._all_namespaces()
        }
        return {account for name in namespaces if (account := labels.get(name))}

    def _quota(self, namespace: str) -> Quota | None:
        path = quota_path(namespace)
        try:
            return self.api.get(path, Quota, what=f"ResourceQuota {namespace}/{QUOTA_NAME}")
        except faults.NoObjectError:
            return None


def quota_path(namespace: str) -> str:
    """Of the ResourceQuota of ours in the namespace."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/resourcequotas/{QUOTA_NAME}"


def label_of(namespace: Namespace, label: str) -> str | None:
    """The value of the namespace's label that kube-state-metrics writes as `label`."""
    for name, value in (namespace.metadata.labels or {}).items():
        if f"label_{_NOT_A_LETTER.sub('_', name)}" == label:
            return value
    return None
