"""The lists of resources in a row of slurmdbd. They repeat from job to job, so each is worked out once."""

from __future__ import annotations

from functools import lru_cache

from clusters.connectors.mig import OwnShares
from clusters.connectors.sacct_tres import Tres, is_read, tres_of_counts
from clusters.connectors.slurm.decode import TresCount, whole

NOTHING = Tres()
_UNITS = ("M", "G", "T", "P", "E")


def allocated(listed: tuple[TresCount, ...] | None, shares: OwnShares = ()) -> Tres:
    """What a job held, by the operator's MIG rows. Raises `UnreadableError` if the list contradicts itself."""
    if not listed:
        return NOTHING
    # No two jobs take the same energy; but for it few lists differ.
    return _allocated(tuple([one for one in listed if one.type != "energy"]), shares)


@lru_cache(maxsize=8192)
def _allocated(listed: tuple[TresCount, ...], shares: OwnShares) -> Tres:
    counts: list[tuple[str, int]] = []
    for one in listed:
        name = f"{one.type}/{one.name}" if one.name else one.type
        if is_read(name):
            counts.append((name, whole(one.count) or 0))
    return tres_of_counts(tuple(counts), shares)


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
