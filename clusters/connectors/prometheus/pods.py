"""Which pods had devices in a window, what they requested, whose they are, and what else prices may select them by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from clusters.connectors.prometheus.allocations import PodAllocation, claimed, in_part, requested, spelled
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.lifecycle import Life, Lifecycle, Window, ask_of_pods, read_of_pods
from clusters.connectors.prometheus.options import AccountFrom, Claims
from clusters.connectors.prometheus.outcomes import outcomes
from clusters.connectors.prometheus.pod_jobs import Owner, owners_of
from clusters.connectors.prometheus.pod_requests import CpuAndMemory, requests_of
from clusters.connectors.prometheus.queries import (
    CLAIM_INFO,
    CREATED,
    FRACTIONS,
    INIT_REQUESTS,
    POD_INFO,
    POD_OWNER,
    QOS_CLASS,
    Queries,
)
from clusters.connectors.prometheus.responses import Series, first, whole


@dataclass(frozen=True, slots=True)
class Owners:
    """Accounts, queues, users and labelled jobs by uid; for accounts by a label of the namespace, by its name."""

    pods: Mapping[str, str]
    namespaces: Mapping[str, str]
    queues: Mapping[str, str]
    users: Mapping[str, str]
    jobs: Mapping[str, str]
    source: AccountFrom

    def account(self, allocation: PodAllocation) -> str:
        """ "" where the label is missing."""
        if self.source is AccountFrom.NAMESPACE:
            return allocation.namespace
        if self.source is AccountFrom.QUEUE:
            return self.queues.get(allocation.uid, "")
        if self.source is AccountFrom.NAMESPACE_LABEL:
            return self.namespaces.get(allocation.namespace, "")
        return self.pods.get(allocation.uid, "")


@dataclass(frozen=True, slots=True)
class PodGroup:
    """One way of holding devices: who holds what, and what is known of those pods."""

    allocations: list[PodAllocation]
    lives: Mapping[str, Life]
    owners: Owners
    attributes: Attributes
    requests: Mapping[str, CpuAndMemory]


def pod_groups(client: PrometheusClient, queries: Queries, window: Window) -> Iterable[PodGroup]:
    """Pods whose containers ask for devices, those whose init containers alone do, then those that hold parts of them
    by an annotation, and those with resource claims. One group at a time."""
    claims = requested(client, queries, window)
    uids = claims.holders
    groups: list[tuple[str, Sequence[PodAllocation]]] = []
    for annotation in FRACTIONS:
        annotated = {
            one.metric.get("uid", ""): one.metric
            for one in client.instant(queries.fractions(annotation, window.length), window.at)
        }
        annotated = {uid: labels for uid, labels in annotated.items() if uid not in uids}
        if annotated:
            uids.update(annotated)
            places = client.instant(queries.of(sorted(annotated)).places(window.length), window.at)
            groups.append((annotation, in_part(places, annotated, annotation, queries.options.labels)))
    if queries.options.claims is Claims.QUARANTINE and (claims_of_pods := claimed(client, queries, window)):
        groups.append((CLAIM_INFO, claims_of_pods))
    for holder, rows in (("", claims.by_containers), (INIT_REQUESTS, claims.by_init_containers)):
        whole = [one for one in rows if not (one.is_bare and one.uid in uids)]
        if whole or not holder:
            yield _pod_group(client, queries, window, whole, holder)
    for annotation, allocations in groups:
        yield _pod_group(client, queries, window, allocations, annotation)


def _pod_group(
    client: PrometheusClient,
    queries: Queries,
    window: Window,
    allocations: Sequence[PodAllocation],
    holder: str,
) -> PodGroup:
    reserved = queries.options.reservations
    allocations = [one for one in allocations if one.namespace not in reserved]
    pods = dict.fromkeys(one.uid for one in allocations)
    lives = Lifecycle(client, queries, window, holder=holder).read(pods)
    if not allocations:
        return PodGroup(allocations, lives, _nobody(), Attributes(), {})
    attributes = attributes_of(client, queries, window, queries.gate(holder), lives)
    pods_themselves = {one.uid: (Owner(one.namespace, "Pod", one.pod),) for one in allocations}
    makers = {uid: (*attributes.owners.get(uid, ()), *pod) for uid, pod in pods_themselves.items()}
    words = outcomes(client, queries, window, lives, makers)
    lives = {uid: replace(life, state=words[uid]) if uid in words else life for uid, life in lives.items()}
    requests = requests_of(client, queries, window, queries.gate(holder), lives)
    owners = _owners(client, queries, window, holder, lives)
    return PodGroup(allocations, lives, owners, attributes, requests)


def _nobody() -> Owners:
    return Owners({}, {}, {}, {}, {}, AccountFrom.NAMESPACE)


def _owners(
    client: PrometheusClient, queries: Queries, window: Window, holder: str, lives: Mapping[str, Life]
) -> Owners:
    options = queries.options
    attribution = options.account
    by_pod = attribution.label if attribution.source is AccountFrom.POD_LABEL else ""
    label_names = (options.queue_labels, (options.user_label,), options.job_labels)
    names = tuple(dict.fromkeys(filter(None, (*chain.from_iterable(label_names), by_pod))))
    pods: dict[str, str] = {}
    queues: dict[str, str] = {}
    users: dict[str, str] = {}
    jobs: dict[str, str] = {}
    namespaces: dict[str, str] = {}
    series = ask_of_pods(
        client,
        queries,
        window,
        queries.gate(holder),
        lambda some, gate, seconds: some.labels(names, gate, seconds),
        lambda uids: [uid for uid, life in lives.items() if uid not in uids and life.ended is not None],
    )
    for one in sorted(series, key=lambda series: sorted(series.metric.items())):
        uid = one.metric.get("uid", "")
        for values, labels in zip((queues, users, jobs), label_names, strict=True):
            values[uid] = first(one.metric, labels) or values.get(uid, "")
        if by_pod:
            pods[uid] = one.metric.get(by_pod, "") or pods.get(uid, "")
    if attribution.source is AccountFrom.NAMESPACE_LABEL:
        for one in client.instant(queries.namespaces(attribution.label, window.length), window.at):
            namespace = spelled(one, "namespace", options.labels)
            namespaces[namespace] = max(one.metric.get(attribution.label, ""), namespaces.get(namespace, ""))
    return Owners(pods, namespaces, queues, users, jobs, attribution.source)


@dataclass(frozen=True, slots=True)
class Attributes:
    """By uid; a pod that nothing is told of is left out."""

    priority_classes: Mapping[str, str] = field(default_factory=dict)
    qos_classes: Mapping[str, str] = field(default_factory=dict)
    created: Mapping[str, int] = field(default_factory=dict)  # epoch seconds
    owners: Mapping[str, Sequence[Owner]] = field(default_factory=dict)  # the next first

    def job(self, uid: str) -> str:
        """The name of what people started; "" where nothing made the pod."""
        return self.owners[uid][-1].name if uid in self.owners else ""


def attributes_of(
    client: PrometheusClient, queries: Queries, window: Window, gate: str, lives: Mapping[str, Life]
) -> Attributes:
    """Raises `ConnectorError`."""
    read = partial(read_of_pods, client, queries, window, gate, lives)
    return Attributes(
        _texts(read(POD_INFO, Queries.priority_class), "priority_class"),
        _texts(read(QOS_CLASS, Queries.qos_class), "qos_class"),
        {
            one.metric.get("uid", ""): second
            for one in read(CREATED, lambda some, by, seconds: some.first(CREATED, by, seconds))
            if one.value is not None and (second := whole(one.value[1])) is not None and second > 0
        },
        owners_of(client, queries, window, read(POD_OWNER, Queries.owner)),
    )


def _texts(series: Sequence[Series], label: str) -> dict[str, str]:
    """Where several are told, in one order whichever way they come."""
    return dict(sorted((one.metric.get("uid", ""), one.metric.get(label, "")) for one in series))
