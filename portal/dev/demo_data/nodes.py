"""What the nodes of all clusters had to give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime, timedelta

from django.db import transaction

from clusters import capacity, declared_nodes
from clusters.connectors.base import NodeSeen, NodeState
from clusters.declared_nodes import Node
from clusters.models import CapacityInterval, Cluster
from portal.dev.demo_data.cast import ATLAS, HELIX, Machine


def declare_nodes(*, since: datetime, drained_from: datetime) -> None:
    """The nodes of the Slurm clusters, from that day on, with one of atlas that is drained for two days.

    Again, nothing.
    """
    first = since.date()
    declared_nodes.declare_nodes(cluster=Cluster.objects.get(name="helix"), nodes=_nodes(HELIX, first))
    nodes = _nodes(ATLAS, first)
    drained, up_again = drained_from.date(), drained_from.date() + timedelta(days=2)
    nodes += [
        replace(nodes[0], until=drained),
        replace(nodes[0], state=NodeState.DRAINED, since=drained, until=up_again),
        replace(nodes[0], since=up_again),
    ]
    del nodes[0]
    declared_nodes.declare_nodes(cluster=Cluster.objects.get(name="atlas"), nodes=nodes)


def _nodes(kinds: Iterable[Machine], since: date) -> list[Node]:
    return [
        Node(f"{kind.prefix}{n}", kind.model, kind.gpus, since=since)
        for kind in kinds
        if kind.gpus
        for n in range(1, kind.count + 1)
    ]


def observe_nodes(*, since: datetime, drained_from: datetime) -> None:
    """What the nodes of the other one had from `since` on, with one that was drained for two days. Again, nothing."""
    cluster = Cluster.objects.get(name="nimbus")
    if CapacityInterval.objects.filter(cluster=cluster).exists():
        return
    nodes = [
        NodeSeen(name=f"nimbus-{kind}-{n}", gpu_model="a100", gpus=gpus, state=NodeState.UP)
        for kind, gpus in (("gpu", 4), ("mig", 2))
        for n in range(1, 5)
    ]
    nodes_after = [replace(nodes[0], state=NodeState.DRAINED), *nodes[1:]]
    with transaction.atomic():
        capacity.observe(cluster, nodes, since)
        capacity.observe(cluster, nodes_after, drained_from)
        capacity.observe(cluster, nodes, drained_from + timedelta(days=2, hours=7))
