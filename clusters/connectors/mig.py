"""What a MIG slice is of a whole GPU: one table for Slurm and for Kubernetes, and the operator's own rows before it.

Shards of Slurm are rows of the operator alone: `shards.py` reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType

from clusters.connectors.base import ConnectorError, UnreadableError
from clusters.connectors.hostlist import node_names
from portal.excerpt import excerpt, quoted

Share = tuple[int, int]
OwnShares = tuple[tuple[str, str, int, int], ...]
"""The operator's rows: model, profile, and the share as numerator and denominator."""

SHARD = "shard"
"""Stands where a profile does: a shard of Slurm."""
SHARD_ON = "shard@"
"""Begins what stands there for shards of the nodes that follow: `shard@gpu[01-04]`."""

# Profiles whose share is not their compute slices of seven: one slice of compute with two of memory, of which four
# fill a GPU. "": of any model, since no other has a slice of that name.
DEFAULT_SHARES: Mapping[tuple[str, str], Share] = MappingProxyType(
    {
        ("a100-40gb", "1g.10gb"): (1, 4),
        ("", "1g.20gb"): (1, 4),
        ("h100", "1g.24gb"): (1, 4),
        ("gh200", "1g.24gb"): (1, 4),
        ("", "1g.35gb"): (1, 4),
        ("gh200", "1g.36gb"): (1, 4),
        ("", "1g.45gb"): (1, 4),
        # Of four slices in all, where no model is named.
        ("", "1g.6gb"): (1, 4),
        ("", "2g.12gb"): (2, 4),
        ("", "4g.24gb"): (4, 4),
    }
)
_OF_FOUR = ("a30", "rtx-pro-6000")
_SLICES = 7  # of other models
_PROFILE = re.compile(r"(?:\d+c\.)?((\d)g\.\d+gb)(?:[+.-][a-z.+-]+)?")
SHARE = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})", re.ASCII)
_MEMORY = re.compile(r"\d+gb")


_TYPE = re.compile(
    r"(?:(?P<model>.+?)[_-])?(?P<profile>(?:\d+c\.)?\dg\.\d+gb(?:[.+][a-z.+]+)?)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class GpuType:
    """One type of GPU: its model, its MIG profile, and what one of them is of a whole GPU."""

    model: str
    profile: str
    share: Share


class UnknownShareError(UnreadableError):
    """The share cannot be told."""


def slice_share(model: str, own: str, profile: str, rows: Mapping[tuple[str, str], Share]) -> Fraction:
    """The operator's row, else a known one, else g of the slices of its GPU.

    A row is of a model, of its family (a100, a100-40gb), or of any (""). `own` is what the source calls the model,
    `model` what the operator does. Raises `UnknownShareError`.
    """
    match = _PROFILE.fullmatch(profile)
    bare = match[1] if match else profile  # with a media engine or without, it is the same part
    families = _families(own)
    for table in (rows, DEFAULT_SHARES):
        for name in (model, *families):
            for row in dict.fromkeys((profile, bare)):
                if (name, row) in table:
                    return Fraction(*table[name, row])
    slices = int(match[2]) if match else 0
    of = 4 if any(name in families for name in _OF_FOUR) else _SLICES
    if not 1 <= slices <= of:
        raise UnknownShareError("unknown-mig-profile", profile=quoted(profile), model=excerpt(model) or "GPU")
    return Fraction(slices, of)


@lru_cache(maxsize=4096)
def gpu_type(name: str, shares: OwnShares = ()) -> GpuType:
    """`a100`, `a100_1g.5gb` or `1g.10gb`, as Slurm types GPUs. Raises `UnknownShareError`."""
    match = _TYPE.fullmatch(name)
    if match is None:
        return GpuType(name, "", (1, 1))
    model, profile = match["model"] or "", match["profile"].lower()
    share = slice_share(model, _plain(model), profile, by_profile(shares))
    return GpuType(model, profile, share.as_integer_ratio())


def own_shares(value: object, key: str) -> OwnShares:
    """The rows of `{model: {profile: "1/7"}}`. Raises `ConnectorError` with one sentence that names what is wrong."""
    rows: list[tuple[str, str, int, int]] = []
    for model, profiles in _table(value, key).items():
        for profile, text in _table(profiles, f"{key}.{model}").items():
            part = SHARE.fullmatch(text) if type(text) is str else None
            if part is None or int(part[1]) > int(part[2]):
                raise ConnectorError(
                    "option-share",
                    retry=False,
                    key=key,
                    value=quoted(text),
                    profile=quoted(profile),
                    model=quoted(model),
                )
            _refuse_unread(profile, key)
            rows.append((model, profile, int(part[1]), int(part[2])))
    return tuple(rows)


def _refuse_unread(profile: str, key: str) -> None:
    """A row that means shards and would never be read as one."""
    if not profile.lower().startswith(SHARD) or profile == SHARD:
        return
    try:
        if not profile.startswith(SHARD_ON):
            raise ValueError
        node_names(profile.removeprefix(SHARD_ON))
    except ValueError:
        raise ConnectorError("option-shard", retry=False, key=key, profile=quoted(profile)) from None


def by_profile(rows: OwnShares) -> dict[tuple[str, str], Share]:
    """The rows as `slice_share` looks them up."""
    return {(model, profile): (part, whole) for model, profile, part, whole in rows}


def _table(value: object, key: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConnectorError("option-no-table", retry=False, key=key)
    return value


def model_names(model: str) -> list[str]:
    """What a row may call a model that a source calls so, the nearest first; the last is ""."""
    return [model, *_families(_plain(model))]


def _plain(model: str) -> str:
    return model.lower().replace("_", "-").removeprefix("nvidia-")


def _families(model: str) -> list[str]:
    """`a100-sxm4-40gb`, `a100-sxm4`, `a100`, `a100-40gb`, the same of what follows a maker's name, and any."""
    parts = model.lower().replace("_", "-").split("-")
    names = []
    for first in range(len(parts)):
        names += ["-".join(parts[first:last]) for last in range(len(parts), first, -1)]
        names += [f"{parts[first]}-{part}" for part in parts[first + 2 :] if _MEMORY.fullmatch(part)]
    return [*names, ""]
