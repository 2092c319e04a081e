"""Ending running jobs whose grace is over: only after a pull that was made for it says that it still holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby

import structlog
from django.db import transaction
from django.db.models import Q

from billing.models import Quota, QuotaAction, QuotaEnding, QuotaEndingState, QuotaEvery
from billing.quotas import demands, endings, figures, jobs
from billing.quotas.figures import Figure
from billing.quotas.jobs import RunningJob
from billing.quotas.quotas import list_quotas
from billing.rating import pulls
from billing.rating.ingest import unforeseen
from billing.rating.pulls import Pulled, PullError, PullOutcome
from billing.rules import quotas as rules
from clusters import enforcement_plan, job_control
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, Request, SchedulerPort
from clusters.models import Act, ActKind, ActOutcome, Cluster
from portal.core import locks
from portal.core.locks import Work
from portal.core.tenants.models import Ownership

AT_ONCE = 50
FIRST, LONGEST = timedelta(minutes=1), timedelta(minutes=30)
"""To the next try of what could not be done; doubles with each."""
AGAIN = timedelta(minutes=10)
"""So often it is looked whether the account has jobs again, while all of the quota is used."""

PortOpener = Callable[[Cluster], SchedulerPort]
Reader = Callable[..., Pulled]

log = structlog.get_logger("billing.quotas")


@dataclass(slots=True)
class EndTally:
    """What was done, in numbers; `troubles` in sentences."""

    warned: int = 0
    ended: int = 0
    troubles: list[str] = field(default_factory=list)


def end_jobs(*, moment: datetime, opens: PortOpener, reads: Reader = pulls.pull) -> EndTally:
    """Warn of what is ended soon, and end the running jobs whose grace is over, cluster by cluster.

    Each cluster is pulled first: a pull that fails ends nothing, and neither does what running jobs are only thought to
    have used since. Must not be called inside a transaction. By two at once, or again after a kill, each job is
    cancelled once.
    """
    done = EndTally(warned=endings.warn_again(moment=moment))
    rows = QuotaEnding.objects.filter(
        state__in=(QuotaEndingState.ANNOUNCED, QuotaEndingState.DONE),
        closed_at=None,
        due_at__lte=moment,
        next_at__lte=moment,
    )
    listed = rows.select_related("account__cluster", "quota__tenant").order_by("account__cluster", "pk")
    for cluster, of_cluster in groupby(list(listed[:AT_ONCE]), lambda row: row.account.cluster):
        with locks.alone(Work.ENDING_JOBS, cluster.pk) as ours:
            if ours:
                _try_cluster(cluster, list(of_cluster), opens, reads, done, moment)
    return done


def _try_cluster(
    cluster: Cluster,
    rows: Sequence[QuotaEnding],
    opens: PortOpener,
    reads: Reader,
    done: EndTally,
    moment: datetime,
) -> None:
    """What fails is one cluster's."""
    try:
        _end_on(cluster, rows, opens, reads, done, moment)
    except (LimitError, ConnectorError, PullError) as error:
        _put_off(rows, str(error), done, moment)
    except Exception as error:
        log.exception("jobs not ended", cluster=cluster.name)
        _put_off(rows, unforeseen(error), done, moment)


def _end_on(
    cluster: Cluster,
    rows: Sequence[QuotaEnding],
    opens: PortOpener,
    reads: Reader,
    done: EndTally,
    moment: datetime,
) -> None:
    busy = [row for row in rows if jobs.list_running(row.quota, row.account)]
    for row in rows:
        if row not in busy:
            _record(row, [], done, moment)
    if not busy:
        return
    pulled = reads(cluster, moment=moment)
    if pulled.outcome is not PullOutcome.DONE:
        why = pulled.error or "It is being read at this moment."
        _put_off(busy, f"{cluster.name} could not be read, so no job was ended: {why}", done, moment)
        return
    with opens(cluster) as port:
        job_control.tidy(port=port)
        for row, quota in _still_demanded(busy, moment):
            # The quota as it is now: it may say of older jobs what it did not say before.
            running = jobs.list_running(quota, row.account)
            keys = {job.key for job in running}
            troubles = [trouble for job in running if (trouble := _cancel(port, row, job, keys))]
            _record(row, troubles, done, moment)


def _still_demanded(rows: Sequence[QuotaEnding], moment: datetime) -> list[tuple[QuotaEnding, Quota]]:
    """Those whose quota is used up by what was read, with the quota as it is now; the next pass stops the others."""
    current = QuotaEnding.objects.filter(pk__in=[row.pk for row in rows], closed_at=None).values_list(
        "pk", flat=True
    )
    quotas = {
        quota.pk: quota
        for quota in list_quotas().filter(
            pk__in={row.quota_id for row in rows}, action=QuotaAction.END_JOBS, watch=False
        )
    }
    by_quota = figures.load_figures(list(quotas.values()), moment=moment, forecasts=False)
    released = demands.load_released({row.tenant_id for row in rows}, moment)
    return [
        (row, quotas[row.quota_id])
        for row in rows
        if row.pk in current
        and row.quota_id in quotas
        and row.tenant_id not in released
        and _is_spent(quotas[row.quota_id], by_quota[row.quota_id], moment)
        and Cluster.objects.filter(pk=row.account.cluster_id, may_end_jobs=True).exists()
        and _is_owned(row, moment)
    ]


def _is_spent(quota: Quota, figure: Figure, moment: datetime) -> bool:
    """Whether what was read suffices, without what is counted on."""
    if quota.every == QuotaEvery.TERM and not figure.window.start <= moment < figure.window.end:
        return False
    used, amount = figure.used - figure.counted_on, figure.amount(quota)
    state = rules.state(used, amount=amount, thresholds=(), overdrawn=figure.is_overdrawn(quota))
    return state == rules.QuotaState.OVER


def _is_owned(row: QuotaEnding, moment: datetime) -> bool:
    rows = Ownership.objects.filter(Q(since=None) | Q(since__lte=moment), account=row.account_id)
    return rows.filter(Q(until=None) | Q(until__gt=moment), tenant=row.tenant_id).exists()


def _cancel(port: SchedulerPort, row: QuotaEnding, job: RunningJob, keys: set[str]) -> str:
    """Why it could not be done, in a sentence; "" where it was, or where the job has ended by itself."""
    number, _, _submitted = job.key.partition("@")
    if not number.isdecimal():
        return f"Job {job.job_id} has no number of Slurm."
    try:
        plan = enforcement_plan.plan(port=port, request=Request(kind=ActKind.CANCEL, job=int(number)))
    except LimitError:  # slurmctld has forgotten it
        return ""
    for step in plan.steps:
        if any("PENDING" in states for states in step.before.values()):
            return f"Job {job.job_id} waits again: it was left."
        if not step.before.keys() <= keys:
            return f"Job {job.job_id} would end others with it that are not to be ended: it was left."
    why = f"budget {row.quota.name} of {row.quota.tenant.slug} is used up, and its grace is over"
    try:
        done = job_control.carry_out(port=port, plan=plan, who=row.source, why=why, exactly=True)
    except LimitError as error:
        return f"Job {job.job_id}: {error}"
    return next((f"Job {job.job_id}: {act.error}" for act in done.acts if act.error), "")


@transaction.atomic
def _record(row: QuotaEnding, troubles: Sequence[str], done: EndTally, moment: datetime) -> None:
    """Write down what the acts on the scheduler say, whoever began them; told once of each job."""
    locked = QuotaEnding.objects.select_for_update(of=("self",)).select_related("quota", "account")
    current = locked.get(pk=row.pk)
    ended = [number for number in _list_ended(row) if number not in current.jobs]
    current.jobs = [*current.jobs, *ended]
    if current.state == QuotaEndingState.ANNOUNCED and (current.jobs or not troubles):
        current.state = QuotaEndingState.DONE
    current.error, current.tries = " ".join(troubles), current.tries + 1 if troubles else 0
    current.next_at = moment + (_distance(row) if troubles else AGAIN)
    current.save()
    if ended:
        endings.tell([current], "ended", moment=moment, jobs=ended)
    done.ended += len(ended)
    done.troubles += [f"{row.account}: {trouble}" for trouble in troubles]


def _list_ended(row: QuotaEnding) -> list[str]:
    """Numbers of the jobs that were cancelled for it, also by a process that died before it wrote that down."""
    acts = Act.objects.filter(
        cluster=row.account.cluster_id,
        account=row.account.name,
        kind=ActKind.CANCEL,
        who=row.source,
        outcome=ActOutcome.DONE,
        intended_at__gte=row.began_at,
    )
    targets = acts.order_by("pk").values_list("target", flat=True)
    return [target.removeprefix("job ").partition("@")[0] for target in targets]


def _put_off(rows: Sequence[QuotaEnding], reason: str, done: EndTally, moment: datetime) -> None:
    for row in rows:
        QuotaEnding.objects.filter(pk=row.pk, closed_at=None).update(
            error=reason, tries=row.tries + 1, next_at=moment + _distance(row)
        )
        done.troubles.append(f"{row.account}: {reason}")
    log.warning("jobs not ended", accounts=[str(row.account) for row in rows], why=reason)


def _distance(row: QuotaEnding) -> timedelta:
    return min(FIRST * (1 << min(row.tries, 16)), LONGEST)
