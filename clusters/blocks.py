"""The reasons beneath the block of an account: each is placed and taken back by itself, the block goes with the last.

What stands is one block, whose limits are those that its reasons demand together. It remembers what each limit was
before, so that nobody has to know who else blocks the account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Prefetch
from django.db.models.functions import Now

from clusters.models import AccountBlock, Act, ActKind, ActOutcome, BlockReason, Cluster

OPERATOR = "operator"
"""The source of what people block by hand. Others name themselves: billing's dunning, and quotas."""

SUBMISSIONS = ("GrpSubmitJobs", "pods of ")
"""How limits begin that keep jobs from being submitted: those of Slurm, and of a ResourceQuota of Kubernetes."""

DRAINS = ("drain of ",)
"""How limits begin that end running jobs: those of a queue of Kueue."""

Limits = Mapping[str, Any]


def current_block(cluster: Cluster, account: str, user: str = "") -> AccountBlock | None:
    """The account's block, or that of a user in it; None where there is none."""
    rows = AccountBlock.objects.filter(cluster=cluster, account=account, user=user, ended_at=None)
    return rows.first()


def reasons(block: AccountBlock | None) -> list[BlockReason]:
    """What stands beneath it, the oldest first."""
    if block is None:
        return []
    rows = BlockReason.objects.filter(block=block, ended_at=None)
    return list(rows.select_related("placed_by").order_by("pk"))


def is_in_force(cluster: Cluster, account: str, *, source: str, user: str = "") -> bool:
    """Whether the account, or the user in it, is blocked for that source, as was read back."""
    rows = BlockReason.objects.filter(
        block__cluster=cluster,
        block__account=account,
        block__user=user,
        block__ended_at=None,
        source=source,
        ended_at=None,
    )
    return rows.filter(placed_by__outcome=ActOutcome.DONE).exists()


def list_blocks(cluster: Cluster) -> list[tuple[AccountBlock, list[BlockReason]]]:
    """The cluster's blocks by account, each with what stands beneath it, the oldest first. Two queries."""
    rows = BlockReason.objects.filter(ended_at=None).select_related("placed_by").order_by("pk")
    blocks = AccountBlock.objects.filter(cluster=cluster, ended_at=None).order_by("account", "user")
    return [
        (block, list(block.reasons.all()))
        for block in blocks.prefetch_related(Prefetch("reasons", queryset=rows))
    ]


def demanded_by(rows: Iterable[BlockReason], names: Iterable[str]) -> set[str]:
    """Those of the limits that these reasons demand together."""
    reasons = list(rows)
    submits, drains = any(row.submits for row in reasons), any(row.drains for row in reasons)
    spared = (*(() if submits else SUBMISSIONS), *(() if drains else DRAINS))
    return {name for name in names if reasons and not name.startswith(spared)}


def lifted(
    block: AccountBlock, *, now: Limits, left: Iterable[BlockReason]
) -> tuple[dict[str, Any], list[str]]:
    """The limits once only `left` stand, and in sentences what is left as somebody else set it."""
    still, limits, notes = demanded_by(left, block.limits), dict(now), []
    for name, (before, ours) in block.limits.items():
        if name in still:
            continue
        if now.get(name) != ours:
            notes.append(_change(name, now.get(name), ours))
        elif before is None:
            limits.pop(name)
        else:
            limits[name] = before
    return limits, notes


def list_changes(block: AccountBlock) -> list[str]:
    """In sentences what somebody has changed of it in the scheduler, as it was read back last."""
    return [
        _change(name, now, block.limits[name][1])
        for name, now in sorted(block.changed.items())
        if name in block.limits
    ]


def _change(name: str, now: Any, ours: Any) -> str:
    return f"{name} is {'none' if now is None else now} and not our {ours} any more: it is left as it is."


def place(act: Act, *, source: str, submits: bool, restores: Limits, drains: bool = False) -> None:
    """In the transaction that writes the act down: the reason that it places, and what its block has to give back.

    `restores` has each limit that the reason demands, with what it was before it was ours (None: it had none).
    """
    block = current_block(act.cluster, act.account, act.user) or AccountBlock(
        cluster=act.cluster, account=act.account, user=act.user, limits={}, blocked_by=act
    )
    for name, before in restores.items():
        ours = act.intended[name]
        if name not in block.limits or act.before.get(name) != ours:
            block.limits[name] = [before, ours]  # somebody may have changed it since: that comes back
        block.changed.pop(name, None)
    block.save()
    # A reason that stands is placed again where somebody has opened what it closed.
    BlockReason.objects.get_or_create(
        block=block,
        source=source,
        submits=submits,
        drains=drains,
        ended_at=None,
        defaults={"placed_by": act},
    )


def take_back(act: Act, *, source: str) -> None:
    """In the transaction that writes the act down: the reasons that end once it is done."""
    rows = BlockReason.objects.filter(
        block__cluster=act.cluster,
        block__account=act.account,
        block__user=act.user,
        source=source,
        ended_at=None,
    )
    rows.update(lifted_by=act)


def follow(act: Act) -> None:
    """In the transaction that tells how the act ended: its reasons, and their block where none is left."""
    if act.kind == ActKind.BLOCK and act.outcome == ActOutcome.FAILED:
        _undo(act)
    elif act.kind == ActKind.UNBLOCK and act.outcome == ActOutcome.DONE:
        BlockReason.objects.filter(lifted_by=act, ended_at=None).update(ended_at=Now())
        _keep_what_is_demanded(act)
    elif act.kind == ActKind.UNBLOCK and act.outcome == ActOutcome.FAILED:
        BlockReason.objects.filter(lifted_by=act, ended_at=None).update(lifted_by=None)


def _undo(act: Act) -> None:
    """A limit that did not become ours is none to be given back."""
    BlockReason.objects.filter(placed_by=act, ended_at=None).update(ended_at=Now())
    block = current_block(act.cluster, act.account, act.user)
    if block is None:
        return
    changed = {name for name in block.limits if act.before.get(name) != act.intended.get(name)}
    if reasons(block):
        block.limits = {name: pair for name, pair in block.limits.items() if name not in changed}
    else:
        block.ended_at = Now()
    block.save()


def _keep_what_is_demanded(act: Act) -> None:
    block = current_block(act.cluster, act.account, act.user)
    if block is None:
        return
    if left := reasons(block):
        still = demanded_by(left, block.limits)
        block.limits = {name: pair for name, pair in block.limits.items() if name in still}
    else:
        block.ended_at, block.lifted_by = Now(), act
    block.save()
