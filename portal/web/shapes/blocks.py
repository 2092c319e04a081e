"""The blocked accounts of a cluster, and what blocking or unblocking one would do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ReasonRow:
    """One reason beneath a block."""

    source: str
    why: str
    by: str
    since: str
    effect: str
    ends: str  # what takes it back
    unsettled: bool  # whether it took effect is not known


@dataclass(frozen=True, kw_only=True)
class BlockRow:
    account: str
    reasons: tuple[ReasonRow, ...]
    may_unblock: bool  # one of the reasons is the operators' own


@dataclass(frozen=True, kw_only=True)
class BlockPreview:
    """What would be done, in words. Without a `plan` there is nothing to do."""

    title: str
    sentences: tuple[str, ...]
    kind: str
    account: str
    submits: bool
    why: str
    plan: str
    button: str


@dataclass(frozen=True, kw_only=True)
class BlocksPage:
    name: str
    rows: tuple[BlockRow, ...]
    may_act: bool  # it is a Slurm cluster with a connection
    may_connect: bool  # it has no connection, and may get one to slurmrestd
    preview: BlockPreview | None
    error: str
    account: str  # what was typed and refused, as the two below
    why: str
    submits: bool
