"""Which containers of which pods hold how many of which devices.

Kubernetes keeps devices for a pod as it keeps CPU and memory (`pod_requests`): what its containers and sidecars ask for
together, or what another init container asks for if that is more, for as long as the pod lives. What that one asks for
beyond the others is an allocation of its own, so that all of a pod's add up to what is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.hami import OF_VGPUS, VGPUS
from clusters.connectors.prometheus.lifecycle import Window
from clusters.connectors.prometheus.options import CpuMemory, Hami, LabelNames
from clusters.connectors.prometheus.pod_requests import sidecars_in
from clusters.connectors.prometheus.queries import (
    CLAIM_INFO,
    CPU_MEMORY,
    DEVICES,
    INIT_REQUESTS,
    REQUESTS,
    Queries,
    parts,
)
from clusters.connectors.prometheus.responses import Series, first, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAllocation:
    """What one container of a pod holds: `count` of a resource, or with an annotation, parts of devices, or a claim.

    `resource` is as kube-state-metrics spells it, or the annotation's name; `annotated` is what that says. `of_each` is
    what is requested of each of HAMi's vGPUs.
    """

    uid: str
    namespace: str
    pod: str
    node: str
    container: str
    resource: str
    count: Decimal
    annotated: str = ""
    of_each: Mapping[str, Decimal] = field(default_factory=dict)

    @property
    def is_bare(self) -> bool:
        """It stands for a pod without devices, by its CPU and memory."""
        return self.resource in CPU_MEMORY

    @property
    def key(self) -> str:
        """Unique for ever within the cluster: a uid never comes back."""
        return f"{self.uid}/{self.container}/{self.resource}"


@dataclass(frozen=True, slots=True)
class Requested:
    """Of pods that ask for devices: those that some container asks for, and those that init containers alone do."""

    by_containers: Sequence[PodAllocation]
    by_init_containers: Sequence[PodAllocation]

    @property
    def holders(self) -> set[str]:
        """Uids of the pods that hold devices."""
        return {row.uid for row in (*self.by_containers, *self.by_init_containers) if not row.is_bare}


def requested(client: PrometheusClient, queries: Queries, window: Window) -> Requested:
    """Raises `ConnectorError`."""
    names = queries.options.labels
    rows = _rows(client.instant(queries.requested(REQUESTS, window.length), window.at), names)
    initial = _rows(client.instant(queries.requested(INIT_REQUESTS, window.length), window.at), names)
    are_parts = queries.options.hami is not Hami.OFF
    claims = [row for row in rows if row.count != 0]
    gated = {row.uid for row in claims}  # a request of none begins no life
    if initial:
        query = queries.sidecars(queries.gate(INIT_REQUESTS), window.length)
        sidecars = sidecars_in(client.instant(query, window.at), queries)
        claims += _beyond(claims, initial, sidecars, are_parts=are_parts)
    if are_parts:
        claims = _with_parts(client, queries, window, claims)
    if queries.options.cpu_memory is CpuMemory.ALL:
        claims = _with_bare(claims)
    return Requested(
        [row for row in claims if row.uid in gated], [row for row in claims if row.uid not in gated]
    )


def _rows(series: Iterable[Series], names: LabelNames) -> list[PodAllocation]:
    """Replicas, rollouts and renamed labels give one row each; they fall into one."""
    rows: dict[str, PodAllocation] = {}
    for one in series:
        if one.value is None:
            continue
        container = spelled(one, "container", names)
        row = _of(one, names, one.value[1], one.metric.get("resource", ""), container=container)
        before = rows.get(row.key)
        if before is None or (row.count, row.node) > (before.count, before.node):
            rows[row.key] = row
    return [row for _, row in sorted(rows.items())]


def _beyond(
    claims: Sequence[PodAllocation],
    initial: Sequence[PodAllocation],
    sidecars: Collection[tuple[str, str]],
    *,
    are_parts: bool,
) -> list[PodAllocation]:
    """What sidecars hold, and what the largest other init container asks for beyond that and what `claims` hold.

    Of parts of devices nothing is told beyond others: they differ, and HAMi gives up those of init containers.
    A count that is none stays in a row of its own, which is kept aside; beyond it nothing can be told.
    """
    held: dict[tuple[str, str], int | None] = defaultdict(int)
    largest: dict[tuple[str, str], PodAllocation] = {}
    rows = []

    def hold(row: PodAllocation) -> None:
        count, before = _number(row), held[row.uid, row.resource]
        held[row.uid, row.resource] = None if count is None or before is None else before + count

    for row in claims:
        hold(row)
    for row in initial:
        if row.is_bare or (row.uid, row.container) in sidecars or _number(row) is None:
            rows.append(row)
            hold(row)
        elif (at := (row.uid, row.resource)) not in largest or row.count > largest[at].count:
            largest[at] = row
    for at, row in largest.items():
        before = held[at]
        if before is not None and row.count > before and not (are_parts and before and at[1] == VGPUS):
            rows.append(replace(row, count=row.count - before))
    return [row for row in rows if row.count != 0]


def _with_parts(
    client: PrometheusClient, queries: Queries, window: Window, claims: Sequence[PodAllocation]
) -> list[PodAllocation]:
    """With what each container requests of each of its vGPUs."""
    of_each: dict[tuple[str, str], dict[str, Decimal]] = defaultdict(dict)
    for metric in (REQUESTS, INIT_REQUESTS):
        for one in client.instant(queries.of_vgpus(metric, OF_VGPUS, window.length), window.at):
            resource = one.metric.get("resource", "")
            if one.value is not None and resource in OF_VGPUS:
                at = one.metric.get("uid", ""), spelled(one, "container", queries.options.labels)
                of_each[at][resource] = max(one.value[1], of_each[at].get(resource, one.value[1]))
    return [
        replace(row, of_each=of_each.get((row.uid, row.container), {})) if row.resource == VGPUS else row
        for row in claims
    ]


def _number(row: PodAllocation) -> int | None:
    count = whole(row.count)
    return count if count is None or count >= 0 else None


def _with_bare(claims: Sequence[PodAllocation]) -> list[PodAllocation]:
    """Devices as they are; of each pod without any, one allocation that holds none."""
    devices = [row for row in claims if not row.is_bare]
    held = {row.uid for row in devices}
    bare = {row.uid: row for row in claims if row.is_bare and row.uid not in held}
    return devices + [
        replace(row, container="", resource=CPU_MEMORY[0], count=Decimal(0)) for row in bare.values()
    ]


def in_part(
    places: Iterable[Series], annotated: Mapping[str, Mapping[str, str]], annotation: str, names: LabelNames
) -> list[PodAllocation]:
    """Of pods that hold parts of devices by an annotation: its series by uid, and where the pods are."""
    rows: dict[str, PodAllocation] = {}
    for one in places:
        labels = annotated.get(one.metric.get("uid", ""))
        if labels is None:  # a pod that nobody asked for
            continue
        count, text = _devices(labels.get(DEVICES, "")), labels.get(annotation, "")
        row = _of(one, names, count, annotation.removeprefix("annotation_"), annotated=text)
        rows[row.key] = row
    return [row for _, row in sorted(rows.items())]


def claimed(client: PrometheusClient, queries: Queries, window: Window) -> list[PodAllocation]:
    """Each resource claim of each pod that has a node. Which devices it holds is not told."""
    claims: dict[str, dict[str, str]] = defaultdict(dict)
    for one in client.instant(queries.claims(window.length), window.at):
        of_pod, name = claims[one.metric.get("uid", "")], one.metric.get("claim_name", "")
        of_pod[name] = max(one.metric.get("resourceclaim_name", ""), of_pod.get(name, ""))
    rows: dict[str, PodAllocation] = {}
    for some in parts(sorted(claims)):
        for one in client.instant(queries.of(some).places(window.length), window.at):
            for name, claim in claims.get(one.metric.get("uid", ""), {}).items():
                texts = {"container": name, "annotated": claim or name}
                row = _of(one, queries.options.labels, Decimal(1), CLAIM_INFO, **texts)
                rows[row.key] = row
    return [row for _, row in sorted(rows.items())]


def _of(
    series: Series,
    names: LabelNames,
    count: Decimal,
    resource: str,
    *,
    container: str = "",
    annotated: str = "",
) -> PodAllocation:
    return PodAllocation(
        uid=series.metric.get("uid", ""),
        namespace=spelled(series, "namespace", names),
        pod=spelled(series, "pod", names),
        node=spelled(series, "node", names),
        container=container,
        resource=resource,
        count=count,
        annotated=annotated,
    )


def _devices(text: str) -> Decimal:
    return Decimal(text) if text.isascii() and text.isdecimal() else Decimal(1)


def spelled(series: Series, what: str, names: LabelNames) -> str:
    """A label under whichever name it has here."""
    return first(series.metric, names.spellings(what))
