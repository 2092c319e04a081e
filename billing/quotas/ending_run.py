"""Ending running jobs whose grace is over: only after a pull that was made for it says that it still holds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import groupby
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Count, Max, OuterRef, Q, Subquery
from django.db.models.expressions import RawSQL

from billing.models import (
    Quota,
    QuotaAction,
    QuotaChange,
    QuotaEnding,
    QuotaEndingState,
    QuotaEvery,
    QuotaReview,
)
from billing.quotas import debts, demands, drains, endings, figures, jobs, plan_quotas
from billing.quotas.figures import Figure
from billing.quotas.job_ends import (
    AT_ONCE,
    EndRun,
    EndTally,
    JobEnd,
    LeftError,
    PortOpener,
    Reader,
    distance,
    end_job,
    freshly_read,
)
from billing.quotas.jobs import RunningJob
from billing.quotas.quotas import list_quotas
from billing.rating import pulls
from billing.rating.ingest import unforeseen
from billing.rating.pulls import PullError
from billing.rules import quotas as rules
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, SchedulerPort
from clusters.gpus_in_use import load_demand
from clusters.models import Cluster, ClusterKind
from clusters.models.acts import OPEN
from portal.core import locks
from portal.core.locks import Work
from portal.core.tenants.models import Ownership

FRESH = timedelta(seconds=10)
"""So long it counts that a quota is used up, while nothing says that it may have changed."""
AGAIN = timedelta(minutes=10)
"""So often it is looked whether the account has jobs again, while all of the quota is used."""

log = structlog.get_logger("billing.quotas")


def end_jobs(*, moment: datetime, opens: PortOpener, reads: Reader = pulls.pull) -> EndTally:
    """Warn of what is ended soon, and end the running jobs whose grace is over, cluster by cluster.

    Each cluster is pulled first: a pull that fails ends nothing, and neither does what running jobs are only thought to
    have used since. Before each cancel it is asked again whether it is still demanded. Must not be called inside a
    transaction. By two at once, or again after a kill, each job is cancelled once.
    """
    began = time.monotonic()
    run = EndRun(lambda: moment + timedelta(seconds=int(time.monotonic() - began)), opens, reads)
    endings.have_leaves_looked_at()
    run.done.warned = endings.warn_again(moment=moment)
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
                _try_cluster(cluster, list(of_cluster), run)
    return run.done


def _try_cluster(cluster: Cluster, rows: Sequence[QuotaEnding], run: EndRun) -> None:
    """What fails is one cluster's."""
    try:
        _end_on(cluster, rows, run)
    except (LimitError, ConnectorError) as error:
        _put_off(rows, str(error), run)
    except Exception as error:
        log.exception("jobs not ended", cluster=cluster.name)
        _put_off(rows, unforeseen(error), run)


def _end_on(cluster: Cluster, rows: Sequence[QuotaEnding], run: EndRun) -> None:
    cancels = endings.load_cancels(rows)
    busy = [
        row
        for row in rows
        if any(act.outcome in OPEN for act in cancels[row.pk])
        or _list_warned(row, jobs.list_running(row.quota, row.account, older=row.ends_older))
    ]
    idle = [row for row in rows if row not in busy]
    demanded = _list_demanded(idle, run.now())
    for row in idle:
        _record(row, demanded.get(row.pk), run)
    if not busy:
        return
    try:
        with freshly_read(cluster, run) as port:
            for row in busy:
                _end_of_account(port, row, run)
    except PullError as error:
        _put_off(busy, str(error), run)


def _end_of_account(port: SchedulerPort, row: QuotaEnding, run: EndRun) -> None:
    """Cancel one by one, each only if nothing has spared it meanwhile."""
    demand = _Demand(row, run)
    quota = demand.load_quota()
    # By the quota as it is now: it may end fewer jobs than it said.
    running = jobs.list_running(quota, row.account, older=row.ends_older) if quota else []
    warned = _list_warned(row, running)
    keys, left, failed = {job.key for job in warned}, list[str](), list[str]()
    if port.cluster.kind == ClusterKind.PROMETHEUS:
        left = _drain(port, row, warned if demand.load_quota() else [], run)
        _record(row, quota, run, left=left)
        return
    for job in warned:
        if not (quota := demand.load_quota()):
            break
        try:
            trouble = end_job(port, _job_end(row, job), among=keys)
            failed += [trouble] if trouble else []
            run.freed[row.account.cluster_id] += 0 if trouble else job.gpus
        except LeftError as error:
            left.append(str(error))
    _record(row, quota, run, left=left, failed=failed)


def _drain(port: SchedulerPort, row: QuotaEnding, warned: Sequence[RunningJob], run: EndRun) -> list[str]:
    """All at once, and why not, in sentences."""
    if not warned:
        return []
    try:
        trouble = drains.drain_account(port, row, warned, moment=run.now())
    except (LeftError, LimitError) as error:
        trouble = str(error)
    return [trouble] if trouble else []


def _list_warned(row: QuotaEnding, running: Sequence[RunningJob]) -> list[RunningJob]:
    """Those that ran when it was announced: only they have had all of the grace and both warnings."""
    return [job for job in running if job.started <= row.began_at.timestamp()]


@dataclass(slots=True)
class _Demand:
    """Whether one ending is still demanded, asked before each cancel: in full where anything can have changed it.

    What changes a figure, a quota or an owner leaves a mark, and a pass that reads the marks writes its review anew.
    """

    row: QuotaEnding
    run: EndRun
    _quota: Quota | None = None
    _marks: tuple[Any, ...] | None = None
    _loaded_at: datetime | None = None

    def load_quota(self) -> Quota | None:
        """The quota that demands it; None where nothing does any more. One query where nothing has changed."""
        marks, moment = self._load_marks(), self.run.now()
        if marks is None or marks != self._marks or self._is_old(moment):
            self._quota = _list_demanded([self.row], moment, freed=self.run.freed).get(self.row.pk)
            self._marks, self._loaded_at = marks, moment
        return self._quota

    def _is_old(self, moment: datetime) -> bool:
        """Periods begin with a minute, rolling windows let go by the second, and each cancel lowers the demand."""
        at = self._loaded_at
        if self._quota is not None and self._quota.demand_above is not None:
            return True
        return at is None or moment >= at + FRESH or moment.minute != at.minute

    def _load_marks(self) -> tuple[Any, ...] | None:
        """Read before the figures: what changes between the two is seen the next time."""
        changes = QuotaChange.objects.filter(tenant=OuterRef("tenant")).order_by().values("tenant")
        review = QuotaReview.objects.filter(tenant=OuterRef("tenant"))
        rows = QuotaEnding.objects.filter(
            pk=self.row.pk, closed_at=None, account__cluster__may_end_jobs=True
        ).annotate(
            changes=Subquery(changes.annotate(number=Count("pk")).values("number")),
            newest=Subquery(changes.annotate(newest=Max("pk")).values("newest")),
            review=Subquery(review.annotate(version=RawSQL("xmin::text::bigint", ())).values("version")),
        )
        return rows.values_list("due_at", "changes", "newest", "review").first()


def _list_demanded(
    rows: Sequence[QuotaEnding], moment: datetime, *, freed: Mapping[int, Fraction] | None = None
) -> dict[int, Quota]:
    """By ending the quota as it is now, of those that are due and used up by what was read."""
    if not rows:
        return {}
    tenants = {row.tenant_id for row in rows}
    with transaction.atomic():
        plan_quotas.follow_plans(tenants, moment=moment)
        debts.settle_debts(tenants, moment=moment)
    current = QuotaEnding.objects.filter(
        pk__in=[row.pk for row in rows],
        closed_at=None,
        due_at__lte=moment,
        account__cluster__may_end_jobs=True,
    )
    places = dict(current.values_list("pk", "quota"))
    quotas = {
        quota.pk: quota
        for quota in list_quotas().filter(
            pk__in=set(places.values()), action=QuotaAction.END_JOBS, watch=False
        )
    }
    by_quota = figures.load_figures(list(quotas.values()), moment=moment, forecasts=False)
    released = demands.load_released(tenants, moment)
    in_use = _load_use(rows, list(quotas.values()), freed)
    return {
        row.pk: quota
        for row in rows
        if (quota := quotas.get(places.get(row.pk, 0))) is not None
        and row.tenant_id not in released
        and quota.counts_since <= row.began_at  # else it counts others than were warned
        and row.began_at + endings.grace(quota) <= moment
        and _is_spent(quota, by_quota[quota.pk], moment)
        and _is_owned(row, moment)
        and debts.is_in_demand(quota, in_use.get(row.account.cluster_id), stands=True)
    }


def _load_use(
    rows: Sequence[QuotaEnding], quotas: Sequence[Quota], freed: Mapping[int, Fraction] | None
) -> Mapping[int, Fraction]:
    """By cluster how much of it is in use, where one of the quotas looks at that."""
    looks = any(quota.demand_above is not None for quota in quotas)
    return load_demand({row.account.cluster_id for row in rows}, freed=freed) if looks else {}


def _is_spent(quota: Quota, figure: Figure, moment: datetime) -> bool:
    """Whether what was read suffices, without what is counted on."""
    if quota.every == QuotaEvery.TERM and not figure.window.start <= moment < figure.window.end:
        return False
    used, amount = figure.used - figure.counted_on, figure.limit(quota)
    state = rules.state(used, amount=amount, thresholds=(), overdrawn=figure.is_overdrawn(quota))
    return state == rules.QuotaState.OVER


def _is_owned(row: QuotaEnding, moment: datetime) -> bool:
    rows = Ownership.objects.filter(Q(since=None) | Q(since__lte=moment), account=row.account_id)
    return rows.filter(Q(until=None) | Q(until__gt=moment), tenant=row.tenant_id).exists()


def _job_end(row: QuotaEnding, job: RunningJob) -> JobEnd:
    why = f"budget {row.quota.name} of {row.quota.tenant.slug} is used up, and its grace period has ended"
    return JobEnd(key=job.key, job_id=job.job_id, account=row.account.name, who=row.source, why=why)


@transaction.atomic
def _record(
    row: QuotaEnding,
    quota: Quota | None,
    run: EndRun,
    *,
    left: Sequence[str] = (),
    failed: Sequence[str] = (),
) -> None:
    """Write down what the acts on the scheduler say, whoever began them; told once of each job.

    `quota`: None where nothing demands it any more, which the next pass sees. Jobs that have started since it was
    announced are announced then, unless a cancel is to be tried again.
    """
    moment, troubles = run.now(), [*left, *failed]
    locked = QuotaEnding.objects.select_for_update(of=("self",)).select_related("quota", "account__cluster")
    current = locked.get(pk=row.pk)
    ended = endings.add_ended(current, endings.load_cancels([current])[current.pk])
    if current.jobs or (quota is not None and not troubles):
        current.state = QuotaEndingState.DONE
    current.error, current.tries = " ".join(troubles), current.tries + 1 if troubles else 0
    current.next_at = moment + (distance(row.tries) if troubles else AGAIN)
    current.save()
    if ended:
        endings.tell([current], "ended", moment=moment, jobs=ended)
    if quota is None:
        QuotaChange.objects.create(tenant_id=current.tenant_id)
    elif current.closed_at is None and not failed and _has_new(current, quota):
        endings.announce_anew(current, quota, moment=moment)
    run.done.ended += len(ended)
    run.done.troubles += [f"{row.account}: {trouble}" for trouble in troubles]


def _has_new(row: QuotaEnding, quota: Quota) -> bool:
    """Whether jobs run that were not announced."""
    running = jobs.list_running(quota, row.account)
    return len(running) > len(_list_warned(row, jobs.list_running(quota, row.account, older=row.ends_older)))


def _put_off(rows: Sequence[QuotaEnding], reason: str, run: EndRun) -> None:
    for row in rows:
        QuotaEnding.objects.filter(pk=row.pk, closed_at=None).update(
            error=reason, tries=row.tries + 1, next_at=run.now() + distance(row.tries)
        )
        run.done.troubles.append(f"{row.account}: {reason}")
    log.warning("jobs not ended", accounts=[str(row.account) for row in rows], why=reason)
