"""The nodes with GPUs, and whether jobs can be given them."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil

from clusters.connectors.base import NodeSeen, NodeState
from clusters.connectors.mig import OwnShares
from clusters.connectors.sacct_fields import UnreadableError
from clusters.connectors.sacct_tres import kind
from clusters.connectors.slurm.decode import Node, words

_GRES = re.compile(r"gpu(?::(?P<type>[^:(]+))?:(?P<count>\d{1,9})(?P<unit>[Kk]?)(?:\(.*\))?", re.ASCII)
_MARKS = "*~#!%$@^-+"  # what Slurm hangs on the word of a state: not answering, powered down, …
_DOWN = frozenset({"DOWN", "ERROR", "FUTURE", "UNKNOWN", "NOT_RESPONDING", "NO_RESPOND"})
_DRAINED = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "INVALID_REG", "INVAL", "MAINT", "MAINTENANCE"}
)


def seen(node: Node, shares: OwnShares = ()) -> list[NodeSeen]:
    """One for each model of GPU in the node; none for a node without GPUs. MIG slices count as their GPUs."""
    gpus = models(node.gres or "", shares)
    state = node_state(node)
    return [
        NodeSeen(name=node.name or "", gpu_model=model, gpus=number, state=state)
        for model, number in sorted(gpus.items())
    ]


def models(gres: str, shares: OwnShares = ()) -> dict[str, int]:
    """`gpu:a100:4(S:0-1),gpu:h100:2` → {"a100": 4, "h100": 2}; "" is the model of GPUs without one."""
    whole: dict[str, Fraction] = {}
    for part in _parts(gres):
        match = _GRES.fullmatch(part)
        if match is None:
            continue
        number = int(match["count"]) * (1024 if match["unit"] else 1)
        try:
            of = kind(match["type"] or "", shares)
        except UnreadableError:
            continue
        whole[of.model] = whole.get(of.model, Fraction(0)) + number * Fraction(*of.share)
    return {model: ceil(share) for model, share in whole.items() if share}


def _parts(gres: str) -> list[str]:
    """Parts at the commas outside brackets: `gpu:a100:4(S:0,2),shard:8`."""
    return re.split(r",(?![^(]*\))", gres)


def node_state(node: Node) -> NodeState:
    """Down before drained: what does not answer is down, whoever keeps it empty."""
    states = {
        word.strip(_MARKS)
        for listed in (node.state, node.state_flags)
        for word in words(listed)
        if word.strip(_MARKS)
    }
    if isinstance(node.state, str) and "*" in node.state:
        return NodeState.DOWN
    if states & _DOWN:
        return NodeState.DOWN
    if states & _DRAINED:
        return NodeState.DRAINED
    return NodeState.UP
