"""How a running job is ended, whatever demands it, a quota or a waste rule: after a fresh pull, one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction

from billing.rating.pulls import Pulled, PullError, PullOutcome
from clusters import enforcement_plan, job_control
from clusters.enforcement_plan import LimitError, Request, SchedulerPort
from clusters.models import ActKind, Cluster

AT_ONCE = 50
FIRST, LONGEST = timedelta(minutes=1), timedelta(minutes=30)
"""To the next try of what could not be done; doubles with each."""

PortOpener = Callable[[Cluster], SchedulerPort]
Reader = Callable[..., Pulled]


class LeftError(Exception):
    """The job is let be; the message says why. That is no failure."""


@dataclass(slots=True)
class EndTally:
    """What was done, in numbers; `troubles` in sentences."""

    warned: int = 0
    ended: int = 0
    troubles: list[str] = field(default_factory=list)


@dataclass(slots=True)
class EndRun:
    """One call: pulls and cancels take their time, so the present goes on from the caller's moment."""

    now: Callable[[], datetime]
    opens: PortOpener
    reads: Reader
    done: EndTally = field(default_factory=EndTally)
    freed: dict[int, Fraction] = field(default_factory=lambda: defaultdict(Fraction))  # GPUs, by cluster


@contextmanager
def freshly_read(cluster: Cluster, run: EndRun) -> Iterator[SchedulerPort]:
    """The cluster's scheduler, after a pull of now, and with what earlier acts left open settled.

    Raises PullError where it cannot be read; then nothing may be ended. LimitError and ConnectorError as opening does.
    """
    pulled = run.reads(cluster, moment=run.now())
    if pulled.outcome is not PullOutcome.DONE:
        why = pulled.error or "It is being read at this moment."
        raise PullError(f"{cluster.name} could not be read, so no job was ended: {why}")
    with run.opens(cluster) as port:
        job_control.tidy(port=port)
        yield port


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """A job that is to be ended, who wants it and why, as the scheduler's history has it."""

    key: str  # number@submission
    job_id: str
    account: str
    who: str
    why: str
    kind: ActKind = ActKind.CANCEL


def end_job(port: SchedulerPort, job: JobEnd, *, among: Collection[str]) -> str:
    """Why it could not be done, in a sentence; "" where it was, or where the job has ended by itself.

    `among`: keys of all that may be ended with it. Raises LeftError.
    """
    number = job.key.partition("@")[0]
    if not number.isdecimal():
        raise LeftError(f"Job {job.job_id} has no number of Slurm.")
    try:
        plan = enforcement_plan.plan(port=port, request=Request(kind=job.kind, job=int(number)))
    except LimitError:  # slurmctld has forgotten it
        return ""
    for step in plan.steps:
        if any("PENDING" in states for states in step.before.values()):
            raise LeftError(f"Job {job.job_id} waits again: it was left.")
        if not step.before.keys() <= set(among):
            raise LeftError(
                f"Job {job.job_id} would end others with it that are not to be ended: it was left."
            )
        if step.account != job.account:
            raise LeftError(f"Job {job.job_id} is of account {step.account} now: it was left.")
    try:
        done = job_control.carry_out(port=port, plan=plan, who=job.who, why=job.why, exactly=True)
    except LimitError as error:
        return f"Job {job.job_id}: {error}"
    return next((f"Job {job.job_id}: {act.error}" for act in done.acts if act.error), "")


def distance(tries: int) -> timedelta:
    """To the next try, after so many that failed."""
    return min(FIRST * (1 << min(tries, 16)), LONGEST)
