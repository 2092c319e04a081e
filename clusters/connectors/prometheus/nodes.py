"""Nodes with GPUs: their labels as they were at a moment, their state now, and what each of their devices is of a whole
GPU of which model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import ceil

from clusters.connectors.base import NodeSeen, NodeState
from clusters.connectors.mig import Share, UnknownShareError, slice_share
from clusters.connectors.prometheus import queries as metrics
from clusters.connectors.prometheus.allocations import spelled
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.hami import VGPUS, gpus_of
from clusters.connectors.prometheus.lifecycle import Window
from clusters.connectors.prometheus.options import Hami, PrometheusOptions
from clusters.connectors.prometheus.queries import Queries, alternatives, most, span
from clusters.connectors.prometheus.responses import Labels, Series, whole
from portal.excerpt import excerpt, quoted

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
        number = gpus_of(labels) if options.hami is not Hami.OFF and resource == VGPUS else count
        totals[of.model] = totals.get(of.model, Fraction(0)) + number * Fraction(*of.share)
    return {model: ceil(gpus) for model, gpus in totals.items() if gpus > 0}


PRODUCT = "label_nvidia_com_gpu_product"
REPLICAS = "label_nvidia_com_gpu_replicas"
MEMORY = "label_nvidia_com_gpu_memory"  # MiB of one GPU
FINEST = 2**31 - 1  # what a share divides a GPU into at most
SIZE = 20  # characters of a number that somebody wrote, and decimal places to its first digit

_PRODUCT = re.compile(
    r"(?P<model>.+?)(?:-MIG-(?P<profile>\dg\.\d+gb[\w.+]*?))?(?P<shared>-SHARED)?", re.IGNORECASE
)
_RESOURCE = re.compile(
    r"nvidia_com_(?:gpu|mig_(?P<profile>\dg_\d+gb\w*?))(?P<shared>_shared)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Shape:
    """`share`: what one device is of a whole GPU. `resource`: as people write it, nvidia.com/mig-2g.10gb."""

    model: str
    profile: str
    share: Share
    resource: str


def shape(resource: str, node: Mapping[str, str], options: PrometheusOptions) -> Shape:
    """Of a resource as kube-state-metrics spells it, on a node with these labels. Raises `UnknownShareError`."""
    match = _RESOURCE.fullmatch(resource)
    product = _PRODUCT.fullmatch(node.get(PRODUCT, ""))
    model = model_of(node, options)
    if match is None:  # of another vendor, whole
        return Shape(model, "", (1, 1), resource)
    slice_name = match["profile"]
    profile = _profile(slice_name) if slice_name else _product_profile(product["profile"]) if product else ""
    own = (product["model"] if product else "").lower().removeprefix("nvidia-")
    share = slice_share(model, own, profile, options.shares) if profile else Fraction(1)
    if match["shared"] or (product and product["shared"]):
        label = f"label_nvidia_com_mig_{slice_name}_replicas" if slice_name else REPLICAS
        share /= _replicas(node, label)
    written = f"nvidia.com/mig-{profile.replace('+', '.')}" if slice_name else "nvidia.com/gpu"
    return Shape(model, profile, share.as_integer_ratio(), written + (".shared" if match["shared"] else ""))


def fraction(annotation: str, value: str, node: Mapping[str, str]) -> Share:
    """Of the annotations `gpu-fraction` ("0.5") and `gpu-memory` (MiB). Raises `UnknownShareError`."""
    try:
        part = _number(value)
        if annotation.endswith("memory"):
            part /= _number(node.get(MEMORY, ""))
    except (InvalidOperation, ValueError, OverflowError, ZeroDivisionError):
        raise UnknownShareError("unknown-fraction", annotation=annotation, text=quoted(value)) from None
    if not 0 < part <= 1:
        raise UnknownShareError("impossible-fraction", annotation=annotation, text=quoted(value))
    if part.denominator > FINEST:
        raise UnknownShareError("too-fine-fraction", annotation=annotation, text=quoted(value))
    return part.as_integer_ratio()


def _number(text: str) -> Fraction:
    """Raises ValueError or a relative where it is none of ordinary size: whoever starts a pod may write anything there,
    and exact arithmetic with `1e-999999999` takes days."""
    number = Decimal(text[: SIZE + 1])
    if len(text) > SIZE or abs(number.adjusted()) > SIZE:
        raise ValueError(text[:SIZE])
    return Fraction(number)


def model_of(node: Mapping[str, str], options: PrometheusOptions) -> str:
    """`NVIDIA-A100-SXM4-40GB-MIG-1g.5gb` is an `a100-sxm4-40gb`, unless the operator calls it otherwise."""
    product = node.get(PRODUCT, "")
    match = _PRODUCT.fullmatch(product)
    bare = match["model"] if match else product
    for name in (product, bare):
        if name in options.models:
            return options.models[name]
    return bare.lower().removeprefix("nvidia-")


def _profile(name: str) -> str:
    """`1g_5gb_me` as `1g.5gb+me`."""
    head, _, extra = name.lower().replace("_", ".", 1).partition("_")
    return f"{head}+{extra.replace('_', '.')}" if extra else head


def _product_profile(name: str | None) -> str:
    """`1g.5gb.me`, as a product ends, is `1g.5gb+me`."""
    return re.sub(r"(?<=gb)\.", "+", (name or "").lower())


def _replicas(node: Mapping[str, str], label: str) -> int:
    text = node.get(label, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= SIZE and int(text)):
        raise UnknownShareError("unknown-replicas", label=excerpt(label))
    return int(text)
