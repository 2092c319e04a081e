"""Acting on a scheduler: hold, release and cancel jobs, block and unblock accounts. Planned in words first.

`plan_*` looks and changes nothing. `job_control.carry_out` looks again, leaves out what is no longer so, writes each
act down before it is sent, and believes only what it reads back. What a dead process left open is settled by looking,
never by sending again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusters import account_limits, blocks
from clusters.blocks import OPERATOR
from clusters.connectors.acts import Acts, Ceiling, JobSeen, NoAccountError, differences
from clusters.connectors.base import Connected, ConnectorError
from clusters.connectors.kubernetes.acts import KubernetesActs
from clusters.connectors.mig import own_shares
from clusters.connectors.shards import shard_rows
from clusters.connectors.slurm.acts import SlurmActs
from clusters.hold_history import HoldHistory
from clusters.models import Act, ActKind, BlockReason, Cluster, ClusterKind
from clusters.models.acts import OPEN
from clusters.scheduler_clients import kubernetes, slurm

OF_ONE_JOB = (ActKind.CANCEL, ActKind.REQUEUE)
"""What is done to one job, by its number."""


class LimitError(Exception):
    """It cannot be done so; the message says why and what to do."""


class StalePlanError(LimitError):
    """What the plan was made from is no longer so. Nothing was done."""


@dataclass(frozen=True, slots=True)
class SchedulerPort(Connected):
    """A cluster, and the way to act on it."""

    cluster: Cluster
    acts: Acts

    def close(self) -> None:
        self.acts.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody wants done."""

    kind: ActKind
    account: str = ""
    user: str = ""
    job: int = 0
    submits: bool = False  # a block refuses new jobs too
    drains: bool = False  # a block ends what runs, too
    source: str = OPERATOR  # what demands the block or the hold, or demands it no more
    keeps: frozenset[str] = frozenset()  # users whose jobs are not released
    gpus_only: bool = False  # jobs that ask for no GPU are not held
    ceiling: Ceiling | None = None  # of a limit; None: the account has none of ours any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One act on one target, in words and in values."""

    target: str
    account: str
    words: str
    before: Mapping[str, Any]
    intended: Mapping[str, Any]
    restores: Mapping[str, Any] = field(default_factory=dict)
    """Of a block: what it demands, with what each limit was before it was ours; None: it had none.

    Of a limit: what is remembered of each, as `account_limits.Changes.records`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done. No steps: there is nothing to do, and `notes` say why."""

    request: Request
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """The same as long as the same would be done to the same world."""
        steps = [(step.target, dict(step.before), dict(step.intended)) for step in self.steps]
        request = self.request
        text = json.dumps(
            [
                *(request.kind, request.account, request.user),
                *(request.source, request.submits, request.drains, steps),
            ],
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def open_port(*, cluster: Cluster, clock: Callable[[], int]) -> SchedulerPort:
    """The port of the cluster's scheduler; it calls nobody yet. Raises LimitError where there is none."""
    try:
        if cluster.kind == ClusterKind.PROMETHEUS:
            return SchedulerPort(cluster, KubernetesActs(kubernetes(cluster=cluster)))
        connection, rest = slurm(cluster=cluster, clock=clock)
    except ConnectorError as error:
        raise LimitError(str(error)) from error
    shards = shard_rows(own_shares(cluster.shares, "shares"))
    return SchedulerPort(cluster, SlurmActs(rest, cluster=connection.slurm_cluster, shards=shards))


def plan(*, port: SchedulerPort, request: Request) -> Plan:
    """What would be done. Raises LimitError, and ConnectorError where the scheduler cannot be asked."""
    if request.kind not in OF_ONE_JOB and not request.account.strip():
        raise LimitError("An account must be named: none would mean the jobs of all.")
    return _PLANNERS[request.kind](port, request)


def plan_block(*, port: SchedulerPort, account: str, submits: bool = False, source: str = OPERATOR) -> Plan:
    """Keep GPU jobs of the account, and of those below it, from starting; `submits`: from being submitted.

    Where it is blocked already for something else, this reason comes beneath the same block.
    """
    request = Request(kind=ActKind.BLOCK, account=account, submits=submits, source=source)
    return plan(port=port, request=request)


def plan_unblock(*, port: SchedulerPort, account: str, source: str = OPERATOR) -> Plan:
    """Take the source's reason back: with the last one, the account has its limits from before again.

    None that somebody has changed since.
    """
    return plan(port=port, request=Request(kind=ActKind.UNBLOCK, account=account, source=source))


def plan_limit(*, port: SchedulerPort, account: str, ceiling: Ceiling | None) -> Plan:
    """Let the account hold no more at once than that; None: what it could hold before. Running jobs run on.

    A limit that its block hides takes effect when the block goes. Limits that were not set here are left as they are.
    """
    return plan(port=port, request=Request(kind=ActKind.LIMIT, account=account, ceiling=ceiling))


def _plan_limit(port: SchedulerPort, request: Request) -> Plan:
    account = request.account
    notes: list[str] = []
    try:
        now = port.acts.limits(account)
    except NoAccountError as error:
        if request.ceiling is not None:
            raise
        now, notes = {}, [f"{error} There is nothing to give back."]
    if (open_act := _open_act(port.cluster, account)) is not None:
        return Plan(request=request, notes=(_unsettled(open_act, account),))
    wanted: dict[str, int] = {}
    if request.ceiling is not None:
        demand = port.acts.ceiling(account, request.ceiling)
        wanted, notes = dict(demand.limits), [*demand.notes]
    changes = account_limits.changes(port.cluster, account, now=now, wanted=wanted)
    notes = [*changes.notes, *notes]
    if not changes.records:
        return Plan(request=request, notes=tuple(notes))
    parts = differences(now, changes.target) or [f"nothing is sent to {port.acts.scheduler}"]
    parts += [
        f"{name}: {'none' if value is None else value} once {account} is unblocked"
        for name, value in sorted(changes.hidden.items())
    ]
    step = Step(
        target=f"account {account}",
        account=account,
        words=f"Limit {port.acts.whom.format(account=account)}: {'; '.join(parts)}. {port.acts.runs}",
        before=now,
        intended=changes.target,
        restores=changes.records,
    )
    return Plan(request=request, steps=(step,), notes=tuple(notes))


def _unsettled(act: Act, account: str) -> str:
    return f"How act {act.pk} ended, which was to {act.kind} {account}, has to be looked at first."


def _plan_hold(port: SchedulerPort, request: Request) -> Plan:
    port.acts.refuse_updates()
    jobs = port.acts.jobs(account=request.account, user=request.user)
    waiting = [job for job in jobs if job.waits and (job.gpu or not request.gpus_only)]
    history = HoldHistory(port.cluster, request.account)
    spared = history.list_let_go_by_hand(request.source)
    holds_of_others = history.list_holds_of_others(request.source)
    steps = [
        _step_of_hold(port, job)
        for job in waiting
        if (_target(job) in holds_of_others if job.held else _target(job) not in spared)
    ]
    notes = [] if steps else [f"No job of {_whose(request)} waits that could be held."]
    if already := sum(job.held and _target(job) not in holds_of_others for job in waiting):
        notes.append(f"Held already: {already}.")
    return Plan(request=request, steps=tuple(steps), notes=tuple(notes))


def _step_of_hold(port: SchedulerPort, job: JobSeen) -> Step:
    """Where a budget holds the job already, the operator's hold is written down alone: it outlasts the budget's."""
    words = f"Hold {job}."
    if job.held:
        words = f"Keep {job} held, which a budget holds now. Nothing is sent to {port.acts.scheduler}."
    return Step(
        target=_target(job),
        account=job.account,
        words=words,
        before={"held": job.held},
        intended={"held": True},
    )


def _plan_release(port: SchedulerPort, request: Request) -> Plan:
    port.acts.refuse_updates()
    ours = HoldHistory(port.cluster, request.account).list_holds(request.source)
    jobs = [
        job
        for job in port.acts.jobs(account=request.account, user=request.user)
        if job.waits and job.held and job.user not in request.keeps
    ]
    steps = [
        Step(
            target=_target(job),
            account=job.account,
            words=f"Release {job}.",
            before={"held": True},
            intended={"held": False},
        )
        for job in jobs
        if _target(job) in ours
    ]
    notes = [] if steps else [f"No job of {_whose(request)} is held that was held here."]
    if others := len(jobs) - len(steps):
        notes.append(f"Held by others and left so: {others}.")
    return Plan(request=request, steps=tuple(steps), notes=tuple(notes))


def _plan_requeue(port: SchedulerPort, request: Request) -> Plan:
    port.acts.refuse_requeues()
    planned = _plan_cancel(port, request)
    steps = [
        replace(step, words=step.words.replace("Cancel ", "Requeue, held, ", 1), intended={"requeued": True})
        for step in planned.steps
    ]
    return replace(planned, steps=tuple(steps))


def _plan_cancel(port: SchedulerPort, request: Request) -> Plan:
    seen = port.acts.job(request.job)
    if not seen:
        raise LimitError(f"{port.cluster.name} has no job {request.job} that waits or runs.")
    live = [job for job in seen if not job.over]
    if not live:
        return Plan(request=request, notes=(f"Job {request.job} has ended already.",))
    of = next((job for job in live if job.id == request.job), live[0])
    more = f", {len(live)} of its array's entries" if len(seen) > 1 else ""
    step = Step(
        target=f"job {request.job}@{of.submitted}",
        account=of.account,
        words=f"Cancel {of} ({of.name}), which is {_state(of)}{more}.",
        before={job.key: sorted(job.states) for job in live},
        intended={"over": True},
    )
    return Plan(request=request, steps=(step,))


def _plan_block(port: SchedulerPort, request: Request) -> Plan:
    account = request.account
    now = port.acts.limits(account, request.user)
    if (open_act := _open_act(port.cluster, account, request.user)) is not None:
        return Plan(request=request, notes=(_unsettled(open_act, account),))
    stands = blocks.reasons(blocks.current_block(port.cluster, account, request.user))
    ours = [row for row in stands if row.source == request.source]
    ours = [row for row in ours if row.submits >= request.submits and row.drains >= request.drains]
    demand = port.acts.demand(account, now=now, submits=request.submits, drains=request.drains)
    limits = {**now, **demand.limits}
    if ours and limits == now:
        note = f"{_whose(request)} is blocked already, by act {ours[-1].placed_by_id}."
        return Plan(request=request, notes=(note,))
    restores = {name: port.acts.restored(now.get(name)) for name in demand.limits}
    if limits != now:
        whom = _whose(request) if request.user else port.acts.whom.format(account=account)
        words = f"Block {whom}: {'; '.join(differences(now, limits))}. {demand.runs or port.acts.runs}"
    else:
        is_left_over = any(now.get(name) != value for name, value in restores.items())
        words = (
            f"Keep {_whose(request)} blocked: {_already(stands, is_left_over=is_left_over)}. "
            f"Nothing is sent to {port.acts.scheduler}."
        )
    step = Step(
        target=f"account {account}",
        account=account,
        words=words,
        before=now,
        intended=limits,
        restores=restores,
    )
    notes = [*demand.notes]
    others = [row for row in stands if row.source != request.source]
    if others and limits != now:
        notes.append(f"It is blocked already for {_names(others)}.")
    return Plan(request=request, steps=(step,), notes=tuple(notes))


def _open_act(cluster: Cluster, account: str, user: str = "") -> Act | None:
    acts = Act.objects.filter(cluster=cluster, target=f"account {account}", user=user, outcome__in=OPEN)
    return acts.first()


def _already(stands: list[BlockReason], *, is_left_over: bool) -> str:
    if stands:
        return f"it is blocked already for {_names(stands)}, and stays so until this is taken back too"
    if is_left_over:
        return "it is still so from an earlier block from here, and is taken back with this one"
    return "somebody else has set its limits to 0 already, and that is what it has again afterwards"


def _names(rows: list[BlockReason]) -> str:
    return " and ".join(dict.fromkeys(str(row) for row in rows))


def _plan_unblock(port: SchedulerPort, request: Request) -> Plan:
    account, whom = request.account, _whose(request)
    block = blocks.current_block(port.cluster, account, request.user)
    stands = blocks.reasons(block)
    left = [row for row in stands if row.source != request.source]
    if block is None or len(left) == len(stands):
        note = f"{whom} is not blocked from here."
        if left:
            note = f"{whom} is not blocked by {request.source}: it stays blocked for {_names(left)}."
        return Plan(request=request, notes=(note,))
    notes = []
    try:
        now = port.acts.limits(account, request.user)
    except NoAccountError as error:
        now, notes = {}, [f"{error} There is nothing to give back."]
    limits, remarks = blocks.lifted(block, now=now, left=left)
    back = "; ".join(differences(now, limits))
    if left:
        words = f"{whom} stays blocked for {_names(left)}" + (f": {back}." if back else ".")
    else:
        words = f"Unblock {whom}: {back or 'nothing of ours is left to take back'}."
    step = Step(target=f"account {account}", account=account, words=words, before=now, intended=limits)
    return Plan(request=request, steps=(step,), notes=(*notes, *remarks))


def _target(job: JobSeen) -> str:
    return f"job {job.key}"


def _whose(request: Request) -> str:
    return f"{request.user} in {request.account}" if request.user else request.account


def _state(job: JobSeen) -> str:
    return " and ".join(sorted(job.states)).lower() or "in an unknown state"


_PLANNERS: dict[ActKind, Callable[[SchedulerPort, Request], Plan]] = {
    ActKind.HOLD: _plan_hold,
    ActKind.RELEASE: _plan_release,
    ActKind.CANCEL: _plan_cancel,
    ActKind.REQUEUE: _plan_requeue,
    ActKind.BLOCK: _plan_block,
    ActKind.UNBLOCK: _plan_unblock,
    ActKind.LIMIT: _plan_limit,
}
