"""Ending idle jobs whose grace is over: only after a fresh pull, and only what its telemetry shows idle until then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from billing.models import WasteAction, WasteFinding, WasteRule, WasteState
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
from billing.rating import pulls
from billing.rating.ingest import unforeseen
from billing.rating.pulls import PullError
from billing.waste import acts, idle_jobs, notices
from billing.waste.review import HOUR, SETTLE
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, SchedulerPort
from clusters.models import ActKind, Cluster
from portal.core import locks
from portal.core.locks import Work

BEFORE = timedelta(minutes=15)
"""So long before the end it is told again."""
LEAST = timedelta(minutes=10)
"""So long before the end it is told again where no worker ran in time: the end waits for that."""
KINDS = {WasteAction.CANCEL: ActKind.CANCEL, WasteAction.REQUEUE: ActKind.REQUEUE}
NOT_READ = "Its telemetry up to the announced moment is not read yet."

log = structlog.get_logger("billing.waste")


def end_waste(*, moment: datetime, opens: PortOpener, reads: Reader = pulls.pull) -> EndTally:
    """Warn of what is ended soon, and end the idle jobs whose grace is over, cluster by cluster.

    Each cluster is pulled first, with its telemetry: a pull that fails ends nothing, and neither does telemetry that
    does not reach to the end of the grace yet. Before each end it is asked again whether the job still meets the rule.
    Must not be called inside a transaction. By two at once, or again after a kill, each job is ended once. Two queries
    where nothing is due.
    """
    began = time.monotonic()
    run = EndRun(lambda: moment + timedelta(seconds=int(time.monotonic() - began)), opens, reads)
    run.done.warned = warn_again(moment=moment)
    due = WasteFinding.objects.filter(
        state=WasteState.ANNOUNCED,
        closed_at=None,
        warned_at__isnull=False,
        due_at__lte=moment,
        next_at__lte=moment,
    )
    rows = list(due.select_related("rule").order_by("cluster", "next_at", "pk")[:AT_ONCE])
    for cluster in Cluster.objects.filter(name__in={row.cluster for row in rows}) if rows else ():
        with locks.alone(Work.ENDING_JOBS, cluster.pk) as ours:
            if ours:
                _try_cluster(cluster, [row for row in rows if row.cluster == cluster.name], run)
    return run.done


@transaction.atomic
def warn_again(*, moment: datetime) -> int:
    """Tell of what is ended within BEFORE once more; each once, by however many at once. How many.

    Nothing is ended sooner than LEAST after it: where no worker ran in time, the end is postponed.
    """
    rows = WasteFinding.objects.select_for_update(of=("self",), skip_locked=True).filter(
        state=WasteState.ANNOUNCED, closed_at=None, warned_at=None, due_at__lte=moment + BEFORE
    )
    listed = list(rows.select_related("rule").order_by("pk"))
    for row in listed:
        row.warned_at = moment
        if row.due_at is None or row.due_at < moment + LEAST:
            begin = (moment + BEFORE).replace(minute=0, second=0, microsecond=0)
            row.due_at = begin + HOUR
        row.next_at = row.due_at + SETTLE
        row.save(update_fields=["warned_at", "due_at", "next_at"])
    notices.tell(listed, "soon", moment=moment)
    return len(listed)


def _try_cluster(cluster: Cluster, rows: Sequence[WasteFinding], run: EndRun) -> None:
    """What fails is one cluster's."""
    try:
        _end_on(cluster, rows, run)
    except (LimitError, ConnectorError, PullError) as error:
        _put_off(rows, str(error), run)
    except Exception as error:
        log.exception("idle jobs not ended", cluster=cluster.name)
        _put_off(rows, unforeseen(error), run)


def _end_on(cluster: Cluster, rows: Sequence[WasteFinding], run: EndRun) -> None:
    under_way = acts.load_acts(rows)
    chosen = [
        row
        for row in rows
        if acts.is_open(under_way[row.pk]) or _demanded(row, run.now(), is_read=False) is not None
    ]
    for row in rows:
        if row not in chosen:
            _record(row, "", run, failed=False)
    if not chosen:
        return
    with freshly_read(cluster, run) as port:
        keys = {row.job_key for row in chosen if _demanded(row, run.now()) is not None}
        for row in chosen:
            _end(port, row, keys, run)


def _end(port: SchedulerPort, row: WasteFinding, keys: set[str], run: EndRun) -> None:
    """Ask again, end it, and write down how it went."""
    rule, trouble, failed = _demanded(row, run.now()), "", False
    if rule is None:
        trouble = NOT_READ  # or it is spared, which the next pass writes down
    else:
        try:
            trouble = end_job(port, _job_end(row, rule), among=keys)
            failed = bool(trouble)
        except (LeftError, ConnectorError) as error:
            trouble, failed = str(error), True
    _record(row, trouble, run, failed=failed)


def _job_end(row: WasteFinding, rule: WasteRule) -> JobEnd:
    why = f"waste rule {rule.name}: its GPUs have not been used since {row.idle_since:%Y-%m-%d %H:%M} UTC"
    return JobEnd(
        key=row.job_key,
        job_id=row.job_id,
        account=row.account,
        who=row.source,
        why=why,
        kind=KINDS[WasteAction(rule.action)],
    )


def _demanded(row: WasteFinding, moment: datetime, *, is_read: bool = True) -> WasteRule | None:
    """The rule as it is now, where it still has this job ended: known to be idle from then until the grace was over.

    `is_read`: its telemetry must reach so far; before a pull it may not yet.
    """
    current = WasteFinding.objects.filter(pk=row.pk, closed_at=None, state=WasteState.ANNOUNCED)
    finding = current.select_related("rule").first()
    if finding is None or finding.due_at is None or finding.due_at > moment:
        return None
    rule = finding.rule
    may_end = Cluster.objects.filter(name=row.cluster, may_end_jobs=True).exists()
    if not may_end or rule.ended_at is not None or rule.watch or rule.action == WasteAction.NOTIFY:
        return None
    idle = idle_jobs.load_idle([rule], moment=moment, records=[row.record_id])
    jobs = idle_jobs.without_excluded(idle, [rule])
    if any(
        job.since <= finding.idle_since
        and (job.through >= finding.due_at or not is_read)
        and (job.tenant, job.account, job.cluster) == (row.tenant_id, row.account, row.cluster)
        for job in jobs
    ):
        return rule
    return None


@transaction.atomic
def _record(row: WasteFinding, trouble: str, run: EndRun, *, failed: bool) -> None:
    """Write down what the acts on the scheduler say, whoever began them; told once of each job."""
    moment = run.now()
    locked = WasteFinding.objects.select_for_update(of=("self",)).select_related("rule")
    current = locked.get(pk=row.pk)
    if current.state != WasteState.ANNOUNCED:
        return
    if acts.record_end(current, acts.load_acts([current])[current.pk], moment=moment):
        notices.tell([current], "ended", moment=moment)
        run.done.ended += 1
        return
    if current.closed_at is not None:
        return
    current.error = trouble
    current.tries = current.tries + 1 if failed else current.tries
    current.next_at = moment + (distance(current.tries) if failed else timedelta(minutes=5))
    current.save(update_fields=["error", "tries", "next_at"])
    if failed:
        run.done.troubles.append(f"{current.cluster}, job {current.job_id}: {trouble}")


def _put_off(rows: Sequence[WasteFinding], reason: str, run: EndRun) -> None:
    for row in rows:
        WasteFinding.objects.filter(pk=row.pk, closed_at=None).update(
            error=reason, tries=row.tries + 1, next_at=run.now() + distance(row.tries)
        )
        run.done.troubles.append(f"{row.cluster}, job {row.job_id}: {reason}")
    log.warning("idle jobs not ended", jobs=[row.job_id for row in rows], why=reason)
