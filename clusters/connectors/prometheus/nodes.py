"""Nodes with GPUs: their labels as they were at a moment, and what state they are in now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from clusters.connectors.base import NodeSeen, NodeState
from clusters.connectors.mig import UnknownShareError
from clusters.connectors.prometheus import queries as metrics
from clusters.connectors.prometheus.answers import Series, whole
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.lifecycle import Window
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.connectors.prometheus.pods import spelled
from clusters.connectors.prometheus.queries import Queries, alternatives, most, span
from clusters.connectors.prometheus.shapes import PRODUCT, shape

Labels = Mapping[str, str]
GPU = "label_nvidia_com_"


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """NVIDIA's labels of each node in a window; where they changed in it, each set with its first instant."""

    sets: Mapping[str, Sequence[tuple[int, Labels]]]  # by node, in order of epoch seconds

    def at(self, node: str, second: int) -> Labels:
        """As they were then; before the window, as they first were in it."""
        current: Labels = {}
        for since, labels in self.sets.get(node, ()):
            if current and since > second:
                break
            current = labels
        return current


def labels_in(client: PrometheusClient, queries: Queries, window: Window) -> NodeLabels:
    """Of all nodes that were there at some time of the window, also of those that are gone."""
    selector = queries.selector(metrics.NODE_LABELS, f'{PRODUCT}!=""')
    label_sets: dict[str, list[Labels]] = {}
    for one in client.instant(f"max_over_time({selector}[{span(window.length)}])", window.at):
        node, labels = _labelled(one, queries.options)
        if labels not in label_sets.setdefault(node, []):
            label_sets[node].append(labels)
    sets = {node: [(window.since, versions[0])] for node, versions in label_sets.items()}
    changed = sorted(node for node, versions in label_sets.items() if len(versions) > 1)
    if changed:
        sets |= _changes(client, queries, window, changed)
    return NodeLabels(sets)


def _changes(
    client: PrometheusClient, queries: Queries, window: Window, nodes: Sequence[str]
) -> dict[str, list[tuple[int, Labels]]]:
    name = queries.options.labels.node or "node"
    selector = queries.selector(metrics.NODE_LABELS, f'{PRODUCT}!=""', f'{name}=~"{alternatives(nodes)}"')
    firsts: dict[str, list[tuple[int, Labels]]] = {}
    for one in client.instant(f"{selector}[{span(window.length)}]", window.at):
        node, labels = _labelled(one, queries.options)
        if one.values:
            firsts.setdefault(node, []).append((int(one.values[0][0]), labels))
    return {node: sorted(versions, key=lambda pair: pair[0]) for node, versions in firsts.items()}


def _labelled(one: Series, options: PrometheusOptions) -> tuple[str, Labels]:
    labels = {name: value for name, value in one.metric.items() if name.startswith(GPU)}
    return spelled(one, "node", options.labels), labels


def seen(client: PrometheusClient, queries: Queries, window: Window, labels: NodeLabels) -> list[NodeSeen]:
    """Every node with GPUs at the window's end. GPUs that its device plugin has taken out of service do not count."""
    matcher = f'resource=~"{queries.options.resources}"'
    capacity = _counts(client, queries, window, queries.selector(metrics.NODE_CAPACITY, matcher))
    allocatable = _counts(client, queries, window, queries.selector(metrics.NODE_ALLOCATABLE, matcher))
    ready = queries.selector(metrics.NODE_CONDITION, 'condition="Ready"', 'status="true"')
    down = _named(client, queries, window, ready, 0)
    cordoned = _named(client, queries, window, queries.selector(metrics.NODE_UNSCHEDULABLE), 1)
    nodes = []
    for node in sorted(capacity.keys() | allocatable.keys()):
        state = NodeState.DOWN if node in down else NodeState.DRAINED if node in cordoned else NodeState.UP
        counts = allocatable if state is NodeState.UP and node in allocatable else capacity
        gpus = _gpus(counts.get(node, {}), labels.at(node, window.at), queries.options)
        nodes += [
            NodeSeen(name=node, gpu_model=model, gpus=count, state=state)
            for model, count in sorted(gpus.items())
        ]
    return nodes


def _named(client: PrometheusClient, queries: Queries, window: Window, selector: str, value: int) -> set[str]:
    """Nodes whose series has that value."""
    query = f"{most(queries.spellings('node'), selector, window.at - window.edge)} == {value}"
    return {spelled(one, "node", queries.options.labels) for one in client.instant(query, window.at)}


def _counts(
    client: PrometheusClient, queries: Queries, window: Window, selector: str
) -> dict[str, dict[str, int]]:
    """By node and resource."""
    counts: dict[str, dict[str, int]] = {}
    by = f"{queries.spellings('node')},resource"
    for one in client.instant(most(by, selector, window.at - window.edge), window.at):
        count = whole(one.value[1]) if one.value else None
        if count is not None and count >= 0:
            node = spelled(one, "node", queries.options.labels)
            counts.setdefault(node, {})[one.metric.get("resource", "")] = count
    return counts


def _gpus(counts: Mapping[str, int], labels: Labels, options: PrometheusOptions) -> dict[str, int]:
    """Whole GPUs by model: slices and replicas together make them; what slices leave over belongs to one too."""
    totals: dict[str, Fraction] = {}
    for resource, count in counts.items():
        try:
            of = shape(resource, labels, options)
        except UnknownShareError:
            continue
        totals[of.model] = totals.get(of.model, Fraction(0)) + count * Fraction(*of.share)
    return {model: ceil(gpus) for model, gpus in totals.items() if gpus > 0}
