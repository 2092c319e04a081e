"""Slurm's TRES lists: `billing=48,cpu=48,gres/gpu:a100=8,gres/gpu=8,mem=400G,node=1`.

The total and the types of GPUs are two views of the same devices and are never added together. A MIG
slice and a shard stay exact fractions of their GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import lcm

from clusters.connectors.base import UnreadableError
from clusters.connectors.mig import GpuType, OwnShares, UnknownShareError, gpu_type
from clusters.connectors.sacct.fields import NO_COUNT
from clusters.connectors.shards import NAME as SHARDS
from clusters.connectors.shards import shard_kinds
from portal.excerpt import excerpt, quoted

_COUNT = re.compile(r"\d{1,20}", re.ASCII)
_SIZE = re.compile(r"(\d{1,20})(?:\.(\d{1,9}))?([KMGTPE]?)", re.ASCII)
_KIB = {"K": 1, "": 2**10, "M": 2**10, "G": 2**20, "T": 2**30, "P": 2**40, "E": 2**50}
_ENERGY = re.compile(r"(?:^|,)energy=(\d{1,20})(?=,|$)", re.ASCII)
_READ = frozenset({"cpu", "mem", "node", "gres/gpu", SHARDS, "billing"})
_TYPED = ("gres/gpu:", f"{SHARDS}:")
_WHOLE = GpuType("", "", (1, 1))  # of a model that is not said
_MOST_MIB = 2**53  # 8 ZiB: beyond any machine, within any integer column


@dataclass(frozen=True, slots=True, kw_only=True)
class Tres:
    """What one list says; None where it does not say. `gpus` counts things of `gpu_share` of a GPU each."""

    cpus: int | None = None
    memory_mib: int = 0
    nodes: int | None = None
    gpus: int = 0
    gpu_model: str = ""
    mig_profile: str = ""
    gpu_share: tuple[int, int] = (1, 1)
    billing: int = 0
    note: str = ""  # code of something an operator should know of


def parse_tres(text: str, shares: OwnShares = (), nodes: str = "") -> Tres:
    """Reads an AllocTRES field; `shares` are the operator's rows of MIG slices and shards, `nodes` a NodeList field.

    Raises `UnreadableError` if anything that is billed by cannot be read.
    """
    return _parsed(text, shares, nodes if SHARDS in text else "")


@lru_cache(maxsize=65_536)
def _parsed(text: str, shares: OwnShares, nodes: str) -> Tres:
    return tres_of_counts(
        tuple(
            (name, mebibytes(value) if name == "mem" else _count(name, value))
            for name, value in _split(text).items()
            if is_read(name)
        ),
        shares,
        nodes,
    )


def energy(listed: str, raw: str) -> int | None:
    """Joules by AllocTRES, else by ConsumedEnergyRaw, as they are printed; None where neither has a value."""
    match = _ENERGY.search(listed) if "energy=" in listed else None
    return (_joules(match[1]) if match else None) or _joules(raw)


def _joules(text: str) -> int | None:
    """None for NO_VAL64 and its like."""
    if not text or not _COUNT.fullmatch(text):
        return None
    return joules if (joules := int(text)) < 2**63 else None


def is_read(name: str) -> bool:
    """Whether anything is billed or noted by the count of this name."""
    return name in _READ or name.startswith(_TYPED)


@lru_cache(maxsize=65_536)
def tres_of_counts(counts: tuple[tuple[str, int], ...], shares: OwnShares = (), nodes: str = "") -> Tres:
    """What a list of counts by name says; `mem` in MiB. `nodes` tell whose shards they are.

    Raises `UnreadableError` if the counts contradict each other, or if it is not known what a shard is of a GPU.
    """
    values = dict(counts)
    kinds, note = _whole_kinds(values, shares)
    for of, number in shard_kinds(values, shares, nodes).items():
        kinds[of] = kinds.get(of, 0) + number
    gpus, model, profile, share, is_mixed = _gpus(kinds)
    return Tres(
        cpus=values.get("cpu"),
        memory_mib=values.get("mem", 0),
        nodes=values.get("node"),
        gpus=gpus,
        gpu_model=model,
        mig_profile=profile,
        gpu_share=share,
        billing=values.get("billing", 0),
        note=note or ("mixed-parts" if is_mixed else ""),
    )


def _split(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if not (name and equals):
            raise UnreadableError("tres", text=quoted(part))
        if name in values:
            raise UnreadableError("tres-twice", name=excerpt(name))
        values[name] = value
    return values


def _whole_kinds(values: dict[str, int], shares: OwnShares) -> tuple[dict[GpuType, int], str]:
    """GPUs and MIG slices by kind, as far as the total says that they are all; and a note."""
    kinds = _kinds(values, shares)
    total = values.get("gres/gpu", sum(kinds.values()))
    if kinds and total != sum(kinds.values()):
        if any(of.profile for of in kinds):
            text = ",".join(f"{name}={number}" for name, number in values.items())
            raise UnreadableError("tres-sum", text=excerpt(text))
        # Which model the others are is not said, and a wrong model would be a wrong price.
        return {_WHOLE: total}, "gpu-types"
    return kinds or ({_WHOLE: total} if total else {}), ""


def _kinds(values: dict[str, int], shares: OwnShares) -> dict[GpuType, int]:
    kinds: dict[GpuType, int] = {}
    for name, number in values.items():
        if name.startswith("gres/gpu:") and number:
            try:
                of = gpu_type(name.removeprefix("gres/gpu:"), shares)
            except UnknownShareError:
                shown = excerpt(name.removeprefix("gres/gpu:"))
                raise UnreadableError("tres-mig", text=shown) from None
            kinds[of] = kinds.get(of, 0) + number
    return kinds


def _count(name: str, text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise UnreadableError("tres-count", name=excerpt(name), text=excerpt(text))
    return int(text) if int(text) < NO_COUNT else 0


@lru_cache(maxsize=4096)
def mebibytes(text: str) -> int:
    """`62.50G` → 64000, to the nearest MiB; without a unit it is MiB. Slurm's "not set" is 0."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UnreadableError("tres-memory", text=excerpt(text))
    whole, fraction, unit = match[1], match[2] or "", match[3]
    if not unit and int(whole) >= 2**64 - 2:
        return 0
    numerator = int(whole + fraction) * _KIB[unit]
    denominator = 1024 * int("1" + "0" * len(fraction))
    memory = (2 * numerator + denominator) // (2 * denominator)
    if memory > _MOST_MIB:
        raise UnreadableError("tres-memory", text=excerpt(text))
    return memory


def _gpus(kinds: dict[GpuType, int]) -> tuple[int, str, str, tuple[int, int], bool]:
    """Count, model, MIG profile, share, and whether they are different parts of GPUs."""
    if not kinds:
        return 0, "", "", (1, 1), False
    is_named = all(of.model or of.profile for of in kinds)
    model = "+".join(sorted({of.model for of in kinds if of.model})) if is_named else ""
    profile = "+".join(sorted({of.profile for of in kinds if of.profile}))
    shares = {of.share for of in kinds}
    if len(shares) == 1:
        return sum(kinds.values()), model, profile, shares.pop(), False
    # Different parts in one row: count them in the largest fraction that fits into all.
    parts = lcm(*(share[1] for share in shares))
    pieces = sum(number * of.share[0] * parts // of.share[1] for of, number in kinds.items())
    return pieces, model, profile, (1, parts), True
