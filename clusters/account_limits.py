"""What accounts may hold at once, as it was set here: each remembers what was before, and a block what it hides.

A limit that a block has set to 0 is changed beneath the block: unblocking gives the present limit back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models.functions import Now

from clusters import blocks
from clusters.connectors.slurm.acts import LIMITS_FROM
from clusters.models import AccountBlock, AccountLimit, Act, ActKind, ActOutcome, Cluster


def takes_limits(api_version: str) -> bool:
    """Whether a Slurm that is read over it, `v0.0.44`, may take limits; "": it was never read, and may."""
    number = api_version.rpartition(".")[2]
    return not (number.isdecimal() and int(number) < LIMITS_FROM)


@dataclass(slots=True)
class Changes:
    """What becomes of an account's limits: `target` at once, `hidden` once its block goes, and what is remembered.

    `records` has by name what the limit was before it was ours, and what is asked for; None: none any more.
    """

    target: dict[str, Any]
    hidden: dict[str, Any] = field(default_factory=dict)
    records: dict[str, tuple[Any, int | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def ours(cluster: Cluster, account: str) -> dict[str, AccountLimit]:
    """By name the limits that were set here and stand."""
    rows = AccountLimit.objects.filter(cluster=cluster, account=account, ended_at=None, lifted_by=None)
    return {row.name: row for row in rows}


def changes(cluster: Cluster, account: str, *, now: Mapping[str, Any], wanted: Mapping[str, int]) -> Changes:
    """From the limits that the account has to those that are wanted of it, and no others of ours.

    One that somebody has changed since is left as it is, until another value is asked for.
    """
    standing = ours(cluster, account)
    block = blocks.current_block(cluster, account)
    result = Changes(dict(now))
    for name in sorted({*wanted, *standing}):
        row, value = standing.get(name), wanted.get(name)
        is_hidden = block is not None and name in block.limits
        current = block.limits[name][0] if block is not None and is_hidden else now.get(name)
        if row is not None and current != row.value:
            result.notes.append(f"{name} is {_text(current)} and not our {row.value} any more.")
        if row is not None and value == row.value:
            continue
        before = current if row is None else row.before
        result.records[name] = (before, value)
        if value is None and row is not None and current != row.value:
            continue
        new = before if value is None else value
        if is_hidden:
            result.hidden[name] = new
        elif new is None:
            result.target.pop(name, None)
        else:
            result.target[name] = new
    return result


def place(act: Act, records: Mapping[str, Any]) -> None:
    """In the transaction that writes the act down: the limits that it changes, ends and sets."""
    for name, (before, value) in records.items():
        rows = AccountLimit.objects.filter(
            cluster=act.cluster, account=act.account, name=name, ended_at=None, lifted_by=None
        )
        rows.update(lifted_by=act)
        if value is not None:
            AccountLimit.objects.create(
                cluster=act.cluster, account=act.account, name=name, value=value, before=before, set_by=act
            )


def follow(act: Act) -> None:
    """In the transaction that tells how the act ended: its limits, and what the account's block gives back."""
    if act.kind != ActKind.LIMIT or act.outcome not in {ActOutcome.DONE, ActOutcome.FAILED}:
        return
    new = AccountLimit.objects.filter(set_by=act, ended_at=None)
    old = AccountLimit.objects.filter(lifted_by=act, ended_at=None)
    if act.outcome == ActOutcome.FAILED:
        new.update(ended_at=Now())
        old.update(lifted_by=None)
        return
    block = blocks.current_block(act.cluster, act.account)
    if block is not None:
        _give_back(block, {row.name: row for row in new}, {row.name: row for row in old})
    old.update(ended_at=Now())


def _give_back(block: AccountBlock, new: Mapping[str, AccountLimit], old: Mapping[str, AccountLimit]) -> None:
    changed = False
    for name in block.limits.keys() & (new.keys() | old.keys()):
        before, ours_now = block.limits[name]
        if name in new:
            block.limits[name] = [new[name].value, ours_now]
        elif before == old[name].value:
            block.limits[name] = [old[name].before, ours_now]
        changed = changed or block.limits[name][0] != before
    if changed:
        block.save()


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
