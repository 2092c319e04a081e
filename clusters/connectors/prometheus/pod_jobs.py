"""Which job a pod is a part of: its owner, or what owns that.

By the published definitions of kube-state-metrics (docs/metrics/workload/pod-metrics.md, replicaset-metrics.md and
job-metrics.md): `kube_pod_owner`, `kube_replicaset_owner` and `kube_job_owner`, each with `owner_kind`, `owner_name`
and `owner_is_controller`. Not yet seen from a live source.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.lifecycle import Window
from clusters.connectors.prometheus.options import LabelNames
from clusters.connectors.prometheus.queries import JOB_OWNER, REPLICASET_OWNER, Queries, parts
from clusters.connectors.prometheus.responses import Series, first

ABOVE: Mapping[str, tuple[str, str]] = {
    "ReplicaSet": (REPLICASET_OWNER, "replicaset"),
    "Job": (JOB_OWNER, "job_name"),
}
"""Kinds that others make for themselves: the metric of their owners, and the label with their own name."""

NOBODY = frozenset({"", "<none>", "Node"})  # older exporters write <none>; a static pod belongs to its node
REPEATS = frozenset({"CronJob"})  # each of the Jobs that it makes is one job

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
"""What objects of Kubernetes can be called. Who makes a pod may write any text as the name of its owner."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What made an object, in the same namespace."""

    namespace: str
    kind: str
    name: str


def owners_of(
    client: PrometheusClient, queries: Queries, window: Window, pods: Sequence[Series]
) -> dict[str, tuple[Owner, ...]]:
    """What made each pod by uid, from series of `kube_pod_owner`: the next first, and last the job for people.

    A pod that no object can own is left out.

    Raises `ConnectorError`.
    """
    names = queries.options.labels
    owners = {
        uid: owner
        for uid, owner in _controllers(pods, "uid", names).items()
        if owner.kind not in NOBODY and _NAME.fullmatch(owner.name)
    }
    above: dict[Owner, Owner] = {}
    for kind in ABOVE:
        above |= _above(client, queries, window, kind, {one for one in owners.values() if one.kind == kind})
    return {uid: (owner, above[owner]) if owner in above else (owner,) for uid, owner in owners.items()}


def _above(
    client: PrometheusClient, queries: Queries, window: Window, kind: str, owners: Collection[Owner]
) -> dict[Owner, Owner]:
    """What owns each of them, where that is a job for people.

    Looked for while the window settles, then over all of it for those that have no series there.
    """
    metric, label = ABOVE[kind]
    parents: dict[Owner, Owner] = {}
    for seconds in (window.at - window.edge, window.length):
        left = sorted({owner.name for owner in owners if owner not in parents})
        if not left or (
            seconds == window.length
            and not parents
            and not client.instant(queries.any(metric, seconds), window.at)
        ):
            break
        asking = [
            partial(client.instant, queries.owners(metric, label, some, seconds), window.at)
            for some in parts(left)
        ]
        by_namespace: dict[str, list[Series]] = defaultdict(list)
        for one in chain.from_iterable(client.together(asking)):
            by_namespace[_namespace(one, queries.options.labels)].append(one)
        for namespace, related in by_namespace.items():
            for name, owner in _controllers(related, label, queries.options.labels).items():
                parents.setdefault(Owner(namespace, kind, name), owner)
    return {
        one: owner
        for one, owner in parents.items()
        if owner.kind not in NOBODY | REPEATS and _NAME.fullmatch(owner.name)
    }


def _controllers(series: Sequence[Series], key: str, names: LabelNames) -> dict[str, Owner]:
    """By the label `key`: the owner that controls it, else the first by kind and name."""
    ranked = sorted(
        (
            one.metric.get("owner_is_controller") == "true",
            one.metric.get("owner_kind", ""),
            one.metric.get("owner_name", ""),
            one.metric.get(key, ""),
            _namespace(one, names),
        )
        for one in series
    )
    owners: dict[str, Owner] = {}
    for controls, kind, name, of, namespace in ranked:
        if controls or of not in owners:
            owners[of] = Owner(namespace, kind, name)
    return owners


def _namespace(series: Series, names: LabelNames) -> str:
    return first(series.metric, names.spellings("namespace"))
