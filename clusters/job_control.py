"""Carrying a plan out: one at a time per cluster, each act written down before it is sent, settled by looking."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from clusters import account_limits, blocks
from clusters.connectors.acts import JobSeen, NoAccountError
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, Plan, Request, SchedulerPort, StalePlanError, Step, plan
from clusters.models import Act, ActKind, ActOutcome, Cluster
from clusters.models.acts import OPEN
from portal.core import locks
from portal.core.audit import acting_as
from portal.core.locks import Work

OF_LIMITS = (ActKind.BLOCK, ActKind.UNBLOCK, ActKind.LIMIT)
PATIENCE = 60  # seconds that one waits for another who acts on the same cluster


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """What became of a plan. `steps`: what was still to be done, of which the first `acts` were begun.

    `left`: steps that were not begun, because the scheduler stopped answering. `dropped`: steps that were left out,
    since their job had meanwhile become what was wanted, or had gone on.
    """

    acts: tuple[Act, ...]
    left: int = 0
    steps: tuple[Step, ...] = ()
    dropped: tuple[Step, ...] = ()

    @property
    def good(self) -> bool:
        return not self.left and all(act.outcome == ActOutcome.DONE for act in self.acts)


def carry_out(
    *, port: SchedulerPort, plan: Plan, who: str, why: str = "", exactly: bool = False
) -> CarriedOut:
    """Do what the plan says, act by act, and read back what stands then.

    Jobs start and end all the while: those that wait no more are not held or released, one that has ended is not
    cancelled, and the rest is done. Limits, and with `exactly` jobs too, must be just as they were when the plan
    was made. Raises StalePlanError where they are not, or where a job's number is another job's now; LimitError
    where somebody else acts on the cluster or an earlier act cannot be settled; ConnectorError where the scheduler
    cannot be asked; then nothing was done. Must not be called inside a transaction: an act is committed before it
    is sent.
    """
    with alone(port.cluster):
        settle(port=port)
        steps, dropped = _still_to_do(port, plan, exactly=exactly)
        _refuse_unsettled(port, steps, user=plan.request.user)
        errand = uuid.uuid4()
        done: list[Act] = []
        for step in steps:
            act = _intend(port.cluster, plan.request, step, errand=errand, who=who, why=why)
            done.append(_perform(port, act))
            if done[-1].outcome == ActOutcome.UNKNOWN:
                break
        return CarriedOut(tuple(done), len(steps) - len(done), tuple(steps), tuple(dropped))


def settle(*, port: SchedulerPort) -> list[Act]:
    """Tell how acts ended whose process died or got no answer, by looking. What cannot be seen stays unknown.

    Only for whoever acts alone on the cluster: an act that is under way at this moment looks the same.
    """
    acts = unsettled(port.cluster)
    for act in acts:
        with acting_as("settled by looking"):
            try:
                after, stands = _LOOKS[ActKind(act.kind)](port, act)
            except ConnectorError as error:
                _end(act, ActOutcome.UNKNOWN, error=str(error))
                continue
            if stands:
                _end(act, ActOutcome.DONE, after=after)
            else:
                _end(act, ActOutcome.FAILED, after=after, error="Looked at later, it had not been done.")
    return acts


def unsettled(cluster: Cluster) -> list[Act]:
    """Acts whose end nobody told: under way at this moment, or left by a process that died."""
    return list(Act.objects.filter(cluster=cluster, outcome__in=OPEN).order_by("pk"))


def tidy(*, port: SchedulerPort) -> None:
    """Settle what is open, if anything is; before a plan is made, which would have to guess. May be called again."""
    if unsettled(port.cluster):
        with alone(port.cluster):
            settle(port=port)


@contextmanager
def alone(cluster: Cluster) -> Iterator[None]:
    """Nobody else acts on the cluster within; who does is waited for. Raises LimitError."""
    end = time.monotonic() + PATIENCE
    while True:
        with locks.alone(Work.ACTING, cluster.pk) as ours:
            if ours:
                yield
                return
        if time.monotonic() > end:
            raise LimitError(
                f"Somebody else has been acting on {cluster.name} for {PATIENCE} s: try again when that is done."
            )
        time.sleep(PATIENCE / 600)


def _still_to_do(port: SchedulerPort, planned: Plan, *, exactly: bool) -> tuple[list[Step], list[Step]]:
    """The steps to take, as the world is now, and those to leave out. What came since the plan is not touched."""
    if planned.request.kind == ActKind.CANCEL and not exactly:
        return _still_to_cancel(port, planned)
    now = {step.target: step for step in plan(port=port, request=planned.request).steps}
    same = [step for step in planned.steps if _is_as_planned(step, now.get(step.target))]
    targets = {step.target for step in same}
    dropped = [step for step in planned.steps if step.target not in targets]
    if dropped and (exactly or planned.request.kind not in {ActKind.HOLD, ActKind.RELEASE}):
        raise _stale()
    return same, dropped


def _still_to_cancel(port: SchedulerPort, planned: Plan) -> tuple[list[Step], list[Step]]:
    """A job is known by number and submission, an array by any of its tasks; what it does now does not matter."""
    try:
        now = plan(port=port, request=planned.request).steps
    except LimitError:  # slurmctld has forgotten it
        now = ()
    if not now:
        return [], list(planned.steps)
    for then, step in zip(planned.steps, now, strict=False):
        if then.target != step.target and not then.before.keys() & step.before.keys():
            raise _stale()
    return list(now[: len(planned.steps)]), []


def _is_as_planned(then: Step, now: Step | None) -> bool:
    """The words may differ: they name the tasks of an array that wait."""
    return now is not None and (then.account, then.before, then.intended) == (
        now.account, now.before, now.intended,
    )  # fmt: skip


def _stale() -> StalePlanError:
    return StalePlanError(
        "What this was planned from has changed since, so nothing was done: look at the plan again."
    )


def _refuse_unsettled(port: SchedulerPort, steps: list[Step], *, user: str) -> None:
    """An act on a job has no user: its target alone tells it apart."""
    targets = {step.target for step in steps}
    acts = Act.objects.filter(cluster=port.cluster, outcome__in=OPEN, target__in=targets)
    left = acts.filter(user__in=("", user)).first()
    if left is not None:
        raise LimitError(f"Act {left.pk} on {left.target} is not settled: {left.error or 'try again'}")


def _intend(cluster: Cluster, request: Request, step: Step, *, errand: uuid.UUID, who: str, why: str) -> Act:
    with acting_as(who, why=why), transaction.atomic(durable=True):
        act = Act.objects.create(
            cluster=cluster,
            kind=request.kind,
            target=step.target,
            account=step.account,
            user=request.user if request.kind in OF_LIMITS else "",
            errand=errand,
            who=who,
            why=why,
            intended_at=Now(),
            before=dict(step.before),
            intended=dict(step.intended),
        )
        if request.kind == ActKind.BLOCK:
            blocks.place(
                act,
                source=request.source,
                submits=request.submits,
                drains=request.drains,
                restores=step.restores,
            )
        elif request.kind == ActKind.UNBLOCK:
            blocks.take_back(act, source=request.source)
        elif request.kind == ActKind.LIMIT:
            account_limits.place(act, step.restores)
        return act


def _perform(port: SchedulerPort, act: Act) -> Act:
    """Send it and tell how it ended. What raises anything but a ConnectorError leaves it open, to be settled."""
    try:
        after = _DOES[ActKind(act.kind)](port, act)
    except ConnectorError as error:
        outcome = ActOutcome.UNKNOWN if error.retry else ActOutcome.FAILED
        with acting_as(act.who, why=act.why):
            return _end(act, outcome, error=str(error))
    with acting_as(act.who, why=act.why):
        return _end(act, ActOutcome.DONE, after=after)


def _end(act: Act, outcome: ActOutcome, *, after: Mapping[str, Any] | None = None, error: str = "") -> Act:
    with transaction.atomic(durable=True):
        act.outcome, act.after, act.error, act.ended_at = outcome, after, error, Now()
        act.save(update_fields=["outcome", "after", "error", "ended_at"])
        blocks.follow(act)
        account_limits.follow(act)
    return act


def _number(act: Act) -> int:
    return int(act.target.removeprefix("job ").partition("@")[0])


def _seen(jobs: list[JobSeen]) -> dict[str, Any]:
    return {job.key: [*sorted(job.states), job.reason] for job in jobs}


def _set(port: SchedulerPort, act: Act) -> Mapping[str, Any]:
    if act.before == act.intended:  # one reason more or less, and the limits stay as they are
        return act.intended  # type: ignore[no-any-return]  # JSON: the limits, as they were written down
    return port.acts.set_limits(act.account, act.intended, before=act.before, user=act.user)


def _hold(port: SchedulerPort, act: Act) -> list[JobSeen]:
    if act.before == act.intended:  # somebody else holds it, and the operator does from now on
        return port.acts.job(_number(act))
    return port.acts.hold(_number(act))


_DOES: dict[ActKind, Callable[[SchedulerPort, Act], Mapping[str, Any]]] = {
    ActKind.HOLD: lambda port, act: _seen(_hold(port, act)),
    ActKind.RELEASE: lambda port, act: _seen(port.acts.release(_number(act))),
    ActKind.CANCEL: lambda port, act: _seen(port.acts.cancel(_number(act))),
    ActKind.REQUEUE: lambda port, act: _seen(port.acts.requeue(_number(act))),
    ActKind.BLOCK: _set,
    ActKind.UNBLOCK: _set,
    ActKind.LIMIT: _set,
}

Look = tuple[Mapping[str, Any], bool]
"""What stands, and whether that is what the act intended."""


def _look_at_hold(port: SchedulerPort, act: Act) -> Look:
    jobs = port.acts.job(_number(act))
    waiting = [job for job in jobs if job.waits]
    return _seen(jobs), bool(waiting) and all(job.held for job in waiting)


def _look_at_release(port: SchedulerPort, act: Act) -> Look:
    jobs = port.acts.job(_number(act))
    return _seen(jobs), not any(job.held for job in jobs if job.waits)


def _look_at_cancel(port: SchedulerPort, act: Act) -> Look:
    jobs = port.acts.job(_number(act))
    return _seen(jobs), all(job.over for job in jobs)


def _look_at_requeue(port: SchedulerPort, act: Act) -> Look:
    """Whether none of the runs that it was about goes on: a requeued job has another submission."""
    jobs = port.acts.job(_number(act))
    return _seen(jobs), not any(job.key in act.before for job in jobs if not (job.over or job.waits))


def _look_at_limits(port: SchedulerPort, act: Act) -> Look:
    """Only the limits that the act meant to change count; somebody may have set others since.

    A block or a limit of which only a part was written is taken back: nobody would remember what was before it.
    """
    changed = {
        name for name in {*act.before, *act.intended} if act.before.get(name) != act.intended.get(name)
    }
    try:
        now = port.acts.limits(act.account, act.user)
    except NoAccountError:
        return {}, act.kind in {ActKind.UNBLOCK, ActKind.LIMIT}
    written = {name for name in changed if now.get(name) == act.intended.get(name)}
    if written == changed:
        port.acts.refuse_without_effect(act.account, act.intended)
    elif written and act.kind in {ActKind.BLOCK, ActKind.LIMIT} and port.acts.in_parts:
        back = {name: act.before[name] for name in written if name in act.before}
        rest = {name: value for name, value in now.items() if name not in written}
        now = port.acts.set_limits(act.account, {**rest, **back}, before=now, user=act.user)
    return now, written == changed


_LOOKS: dict[ActKind, Callable[[SchedulerPort, Act], Look]] = {
    ActKind.HOLD: _look_at_hold,
    ActKind.RELEASE: _look_at_release,
    ActKind.CANCEL: _look_at_cancel,
    ActKind.REQUEUE: _look_at_requeue,
    ActKind.BLOCK: _look_at_limits,
    ActKind.UNBLOCK: _look_at_limits,
    ActKind.LIMIT: _look_at_limits,
}
