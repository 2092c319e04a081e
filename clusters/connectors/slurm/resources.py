"""What a row of slurmdbd lists as allocated and requested, and what nodes have to give.

The lists repeat from job to job, so each is worked out once."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from clusters.connectors.base import NodeSeen, NodeState
from clusters.connectors.mig import OwnShares, UnknownShareError, gpu_type
from clusters.connectors.sacct.tres import Tres, is_read, tres_of_counts
from clusters.connectors.shards import NAME as SHARDS
from clusters.connectors.slurm.decode import Node, TresCount, joules, whole, words

NOTHING = Tres()
_UNITS = ("M", "G", "T", "P", "E")


def allocated(listed: tuple[TresCount, ...] | None, shares: OwnShares = (), nodes: str | None = "") -> Tres:
    """What a job held on these nodes, by the operator's rows of MIG slices and shards. Raises `UnreadableError`."""
    if not listed:
        return NOTHING
    # No two jobs take the same energy; but for it few lists differ.
    counts = _counts(tuple([one for one in listed if one.type != "energy"]))
    return tres_of_counts(counts.values, shares, (nodes or "") if counts.have_shards else "")


def energy(listed: tuple[TresCount, ...] | None) -> int | None:
    """Joules that a job's nodes took while it ran, as Slurm keeps them: also what stands for "no value"."""
    return next((joules(one.count) for one in listed or () if one.type == "energy"), None)


class _Counts(NamedTuple):
    values: tuple[tuple[str, int], ...]
    have_shards: bool


@lru_cache(maxsize=8192)
def _counts(listed: tuple[TresCount, ...]) -> _Counts:
    counts: list[tuple[str, int]] = []
    for one in listed:
        name = f"{one.type}/{one.name}" if one.name else one.type
        if is_read(name):
            counts.append((name, whole(one.count) or 0))
    return _Counts(tuple(counts), any(name.startswith(SHARDS) for name, _ in counts))


def requested(listed: tuple[TresCount, ...] | None) -> tuple[str, int]:
    """What was asked for as sacct prints it, and how many nodes of it.

    `billing=48,cpu=4,gres/gpu:a100=1,gres/gpu=1,mem=62.50G,node=1`.
    """
    return _printed(listed) if listed else ("", 0)


@lru_cache(maxsize=8192)
def _printed(listed: tuple[TresCount, ...]) -> tuple[str, int]:
    parts = []
    for one in listed:
        count = whole(one.count)
        if count is not None:
            shown = _amount(count) if one.type == "mem" and not one.name else count
            parts.append(f"{one.type}/{one.name}={shown}" if one.name else f"{one.type}={shown}")
    nodes = next((whole(one.count) or 0 for one in listed if one.type == "node"), 0)
    return ",".join(sorted(parts)), nodes


def _amount(mebibytes: int) -> str:
    """64000 → `62.50G`: hundredths of the largest unit of which there is one."""
    unit, size = 0, 1
    while mebibytes >= 1024 * size and unit < len(_UNITS) - 1:
        unit, size = unit + 1, size * 1024
    if mebibytes % size == 0:
        return f"{mebibytes // size}{_UNITS[unit]}"
    hundredths = (mebibytes * 200 + size) // (2 * size)
    return f"{hundredths // 100}.{hundredths % 100:02d}{_UNITS[unit]}"


_COUNTED = r"(?::(?P<type>[^:(]+))?:(?P<count>\d{1,9})(?P<unit>[Kk]?)(?:\(.*\))?"
_GRES = re.compile(f"gpu{_COUNTED}", re.ASCII)
_SHARDS = re.compile(f"shard{_COUNTED}", re.ASCII)
_MARKS = "*~#!%$@^-+"  # what Slurm hangs on the word of a state: not answering, powered down, …
_DOWN = frozenset({"DOWN", "ERROR", "FUTURE", "UNKNOWN", "NOT_RESPONDING", "NO_RESPOND"})
_DRAINED = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "INVALID_REG", "INVAL", "MAINT", "MAINTENANCE"}
)


def node_capacity(node: Node, shares: OwnShares = ()) -> list[NodeSeen]:
    """One for each model of GPU in the node; none for a node without GPUs. MIG slices count as their GPUs."""
    gpus = gpu_models(node.gres or "", shares)
    state = node_state(node)
    return [
        NodeSeen(name=node.name or "", gpu_model=model, gpus=number, state=state)
        for model, number in sorted(gpus.items())
    ]


def gpu_models(gres: str, shares: OwnShares = ()) -> dict[str, int]:
    """`gpu:a100:4(S:0-1),gpu:h100:2` → {"a100": 4, "h100": 2}; "" is the model of GPUs without one."""
    whole: dict[str, Fraction] = {}
    for part in _parts(gres):
        match = _GRES.fullmatch(part)
        if match is None:
            continue
        number = _number(match)
        try:
            of = gpu_type(match["type"] or "", shares)
        except UnknownShareError:
            continue
        whole[of.model] = whole.get(of.model, Fraction(0)) + number * Fraction(*of.share)
    return {model: ceil(share) for model, share in whole.items() if share}


def shards(gres: str) -> int:
    """`gpu:a100:4,shard:a100:16` → 16, in which a node's GPUs are not counted again."""
    matches = [match for part in _parts(gres) if (match := _SHARDS.fullmatch(part))]
    return sum(_number(match) for match in matches)


def _number(match: re.Match[str]) -> int:
    return int(match["count"]) * (1024 if match["unit"] else 1)


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
