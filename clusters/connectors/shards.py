"""What a shard (Slurm's `gres/shard`) is of a whole GPU, by the operator's rows alone.

Slurm does not say it: a job's row counts shards without a model, and a node lists how many it has in all
(`gpu:a100:4,shard:a100:16`), whether each of its GPUs has four or one of them has sixteen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from clusters.connectors.base import UnreadableError
from clusters.connectors.hostlist import node_names
from clusters.connectors.mig import SHARD, SHARD_ON, GpuType, OwnShares, Share, model_names
from portal.excerpt import excerpt

NAME = "gres/shard"


@dataclass(frozen=True, slots=True)
class ShardRow:
    """What a shard is of a GPU of that model ("": of any), on these nodes (None: on those that no other row names)."""

    model: str
    nodes: frozenset[str] | None
    share: Share


def shard_kinds(values: Mapping[str, int], shares: OwnShares, nodes: str) -> dict[GpuType, int]:
    """How many shards of which kind the counts of a list are, on the nodes of its job.

    Raises `UnreadableError` where the rows do not say what one is, or say it in two ways.
    """
    by_model = {
        name.removeprefix(f"{NAME}:"): number
        for name, number in values.items()
        if name.startswith(f"{NAME}:")
    }
    total = values.get(NAME, sum(by_model.values()))
    if (
        sum(by_model.values()) != total
    ):  # Slurm counts all of them, and by model only those that it was told to
        by_model = {"": total}
    kinds: dict[GpuType, int] = {}
    for model, number in by_model.items():
        if number:
            of = shard_type(model, shares, nodes)
            kinds[of] = kinds.get(of, 0) + number
    return kinds


@lru_cache(maxsize=4096)
def shard_type(model: str, shares: OwnShares, nodes: str) -> GpuType:
    """A shard on all of these nodes; with a model "" of whichever GPUs the rows name there."""
    rows = shard_rows(shares)
    parts: set[Share] = set()
    models: set[str] = set()
    for node in _names(nodes):
        fitting = _rows_of(node, model, rows)
        if not fitting:
            raise UnreadableError("tres-shard", node=excerpt(node or nodes) or "-")
        parts.update(row.share for row in fitting)
        of_node = {row.model for row in fitting}
        models.add(of_node.pop() if len(of_node) == 1 else "")
    if len(parts) > 1:
        shown = ", ".join(f"{part}/{whole}" for part, whole in sorted(parts))
        raise UnreadableError("tres-shard-parts", nodes=excerpt(nodes) or "-", parts=excerpt(shown))
    return GpuType(model or ("" if "" in models else "+".join(sorted(models))), "", parts.pop())


@lru_cache(maxsize=64)
def shard_rows(shares: OwnShares) -> tuple[ShardRow, ...]:
    """The rows of shards among the operator's."""
    return tuple(
        ShardRow(
            model,
            node_names(profile.removeprefix(SHARD_ON)) if profile.startswith(SHARD_ON) else None,
            (part, whole),
        )
        for model, profile, part, whole in shares
        if profile == SHARD or profile.startswith(SHARD_ON)
    )


def largest_shard(model: str, shares: OwnShares) -> GpuType:
    """The most that a shard of this model ("": of any) is of a GPU: where its nodes are not known yet.

    Raises `UnreadableError` where the rows do not say it.
    """
    rows = _rows_of("", model, shard_rows(shares))
    if not rows:
        raise UnreadableError("tres-shard", node="-")
    models = {row.model for row in rows}
    return GpuType(model or (models.pop() if len(models) == 1 else ""), "", largest_share(rows))


def largest_share(rows: Iterable[ShardRow]) -> Share:
    """That a shard of one of them is of its GPU."""
    return max((row.share for row in rows), key=lambda share: Fraction(*share))


def _names(nodes: str) -> Iterable[str]:
    """ "" alone where the row does not name its nodes."""
    try:
        return sorted(node_names(nodes))
    except ValueError:
        return [""]


def _rows_of(node: str, model: str, rows: tuple[ShardRow, ...]) -> list[ShardRow]:
    """Rows that name the node before those that name none; all of them where the node is not known."""
    if model:
        rows = tuple(row for row in rows if row.model in model_names(model))
    naming = [row for row in rows if row.nodes is not None and (not node or node in row.nodes)]
    others = _nearest(model, [row for row in rows if row.nodes is None])
    if not node:
        return [*naming, *others]
    return _nearest(model, naming) or others


def _nearest(model: str, rows: list[ShardRow]) -> list[ShardRow]:
    """The rows of the model before those of its family and of any; all of them where no model is said."""
    if not model:
        return rows
    return next((of for name in model_names(model) if (of := [row for row in rows if row.model == name])), [])
