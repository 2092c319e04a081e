"""Capacity that an operator declares, for clusters whose nodes nobody observes: those that are read from files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from itertools import pairwise
from zoneinfo import ZoneInfo

from django.db import transaction

from clusters import ledger
from clusters.capacity import CapacityError, ModelCapacity
from clusters.models import CapacityState, Cluster, DeclaredNode

MOST_GPUS = 1_000_000  # of one node, far above any that there is
BEGIN, END = -(2**62), 2**62  # epoch seconds of what has no first or last day


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A node from one day to another, of the cluster's zone: [since, until), None for always and for good."""

    name: str
    gpu_model: str
    gpus: int
    state: str = CapacityState.UP.value
    since: date | None = None
    until: date | None = None

    @property
    def place(self) -> tuple[str, str]:
        return self.name, self.gpu_model

    @property
    def sentence(self) -> str:
        """`n1: 4 × rtx4090, up, from 2026-06-01`"""
        days = "".join(
            f", {word} {day}"
            for word, day in (("from", self.since), ("until", self.until))
            if day is not None
        )
        return f"{self.name}: {self.gpus} × {self.gpu_model}, {self.state}{days}"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What declaring these nodes changes."""

    added: list[Node]
    removed: list[Node]
    unchanged: list[Node]


def nodes_of(cluster: Cluster) -> list[Node]:
    """As they are declared now, by name and first day. One query."""
    return in_order(DeclaredNode.objects.filter(cluster=cluster))


def capacity_on(nodes: Iterable[Node], day: date) -> list[ModelCapacity]:
    """GPUs of each model on that day, by the state of their nodes."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        if (node.since is None or node.since <= day) and (node.until is None or day < node.until):
            counts[node.gpu_model][node.state] += node.gpus
    return [
        ModelCapacity(
            model, states[CapacityState.UP], states[CapacityState.DRAINED], states[CapacityState.DOWN]
        )
        for model, states in sorted(counts.items())
    ]


def in_order(rows: Iterable[DeclaredNode]) -> list[Node]:
    """By name and first day."""
    nodes = [Node(row.name, row.gpu_model, row.gpus, row.state, row.since, row.until) for row in rows]
    return sorted(nodes, key=_order)


def plan_nodes(cluster: Cluster, nodes: Iterable[Node]) -> Declaration:
    """What `declare_nodes` would change. Raises CapacityError, with a sentence for each that cannot be."""
    declared = sorted(set(nodes), key=_order)
    if errors := [*_errors(declared)]:
        raise CapacityError("\n".join(errors))
    now = nodes_of(cluster)
    return Declaration(
        [node for node in declared if node not in now],
        [node for node in now if node not in declared],
        [node for node in declared if node in now],
    )


@transaction.atomic
def declare_nodes(*, cluster: Cluster, nodes: Iterable[Node]) -> Declaration:
    """Have the cluster's declared nodes be exactly these. The same again changes nothing. Raises CapacityError."""
    ledger.lock(cluster)
    planned = plan_nodes(cluster, nodes)
    for node in planned.removed:
        DeclaredNode.objects.filter(
            cluster=cluster, name=node.name, gpu_model=node.gpu_model, since=node.since
        ).delete()
    DeclaredNode.objects.bulk_create(
        DeclaredNode(
            cluster=cluster,
            name=node.name,
            gpu_model=node.gpu_model,
            gpus=node.gpus,
            state=node.state,
            since=node.since,
            until=node.until,
        )
        for node in planned.added
    )
    return planned


def intervals(cluster: Cluster) -> list[tuple[str, int, str, int, int]]:
    """(model, GPUs, state, since, until) in epoch seconds; BEGIN and END where no day is named. One query."""
    zone = ZoneInfo(cluster.timezone)
    return [
        (row.gpu_model, row.gpus, row.state, _second(row.since, zone, BEGIN), _second(row.until, zone, END))
        for row in nodes_of(cluster)
    ]


@dataclass(frozen=True, slots=True)
class Placed:
    """A declared node of a cluster in [since, until), epoch seconds; `through`: as far as the cluster is read."""

    cluster: str
    gpu_model: str
    gpus: int
    since: int
    until: int
    through: int


def everywhere() -> list[Placed]:
    """The declared nodes of all clusters of which something is read. One query."""
    rows = DeclaredNode.objects.filter(cluster__complete_through__isnull=False).select_related("cluster")
    placed = []
    for row in rows:
        zone, through = ZoneInfo(row.cluster.timezone), row.cluster.complete_through
        if through is not None:
            span = _second(row.since, zone, BEGIN), _second(row.until, zone, END)
            placed.append(Placed(row.cluster.name, row.gpu_model, row.gpus, *span, int(through.timestamp())))
    return placed


def _second(day: date | None, zone: ZoneInfo, otherwise: int) -> int:
    if day is None:
        return otherwise
    return int(datetime.combine(day, time(), zone).astimezone(UTC).timestamp())


def _errors(nodes: Sequence[Node]) -> Iterable[str]:
    for node in nodes:
        if not node.name or not node.gpu_model:
            yield "A node needs a name and the GPU model as jobs name it."
        if not 1 <= node.gpus <= MOST_GPUS:
            yield f"{node.name} has {node.gpus} GPUs: give a whole number from 1 on."
        if node.since is not None and node.until is not None and node.until <= node.since:
            yield f"{node.name} ends on {node.until}, before or as it begins on {node.since}: give a later last day."
    for before, after in pairwise(nodes):
        if before.place == after.place and (
            before.until is None or after.since is None or before.until > after.since
        ):
            yield (
                f"{before.name} is declared twice for one day ({before.sentence}; {after.sentence}): end the one "
                "before the other begins."
            )


def _order(node: Node) -> tuple[str, str, date, date]:
    return node.name, node.gpu_model, node.since or date.min, node.until or date.max
