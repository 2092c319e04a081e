"""Ending what runs in queues of Kueue. A queue ends all of it at once, so only where all of it may be ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import groupby

import structlog

from billing.dunning import scheduler_blocks
from billing.dunning.scheduler_blocks import BlockTally, OtherTenantsBelowError
from billing.models import QuotaEnding
from billing.models.quota_endings import DRAIN_SOURCE
from billing.quotas import jobs
from billing.quotas.job_ends import LeftError, PortOpener, distance
from billing.quotas.jobs import RunningJob
from billing.rating.ingest import unforeseen
from clusters import blocks, enforcement_plan, job_control
from clusters.connectors.acts import ActRefusedError
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, Request, SchedulerPort
from clusters.models import ActKind, BlockReason

LONG = timedelta(minutes=30)
"""So long after a drain jobs may still be seen to run: pods have their time to end, and are read later."""

log = structlog.get_logger("billing.quotas")


def drain_account(
    port: SchedulerPort, row: QuotaEnding, warned: Collection[RunningJob], *, moment: datetime
) -> str:
    """Have the account's queues end what runs in them, all of which was warned; again, nothing is sent.

    Why it could not be done, in a sentence; "" where it stands. Raises LeftError where it must not be done.
    """
    account = row.account
    keys = {job.key for job in warned}
    if others := [job for job in jobs.list_all_running(account) if job.key not in keys]:
        raise LeftError(
            f"{account.name} runs {len(others)} more that are not to be ended, and Kueue ends all that runs in a queue."
        )
    try:
        scheduler_blocks.refuse_other_tenants(port, account=account.name, tenant=row.tenant_id, moment=moment)
        request = Request(kind=ActKind.BLOCK, account=account.name, source=row.drain_source, drains=True)
        plan = enforcement_plan.plan(port=port, request=request)
    except (OtherTenantsBelowError, ActRefusedError) as error:
        raise LeftError(str(error)) from error
    if plan.steps:
        row.drained_at = moment
        row.save(update_fields=["drained_at"])
        why = f"budget {row.quota.name} of {row.quota.tenant.slug} is used up, and its grace is over"
        done = job_control.carry_out(port=port, plan=plan, who=row.source, why=why, exactly=True)
        return next((act.error for act in done.acts if act.error), "")
    if not blocks.is_in_force(account.cluster, account.name, source=row.drain_source):
        return " ".join(plan.notes)
    if row.drained_at is not None and moment >= row.drained_at + LONG:
        raise LeftError(f"{account.name} still runs {len(keys)} that do not go through Kueue, or do not end.")
    return ""


def lift_drains(*, moment: datetime, opens: PortOpener, done: BlockTally) -> None:
    """Take back what endings have drained and do not demand any more; what fails is tried again. One query if none.

    Must not be called inside a transaction. By two at once, or again after a kill, each is taken back once.
    """
    for cluster, rows in groupby(_list_over(moment), lambda row: row.account.cluster):
        listed = list(rows)
        try:
            with opens(cluster) as port:
                job_control.tidy(port=port)
                for row in listed:
                    _try_lift(port, row, done, moment)
        except (LimitError, ConnectorError) as error:
            _put_off(listed, str(error), done, moment)
        except Exception as error:  # and no other cluster's
            log.exception("cluster failed", cluster=cluster.name)
            _put_off(listed, unforeseen(error), done, moment)


def _try_lift(port: SchedulerPort, row: QuotaEnding, done: BlockTally, moment: datetime) -> None:
    """What fails is one account's: the others' queues are opened."""
    try:
        _lift(port, row)
    except (LimitError, ConnectorError) as error:
        _put_off([row], str(error), done, moment)
    except Exception as error:
        log.exception("account failed", account=str(row.account))
        _put_off([row], unforeseen(error), done, moment)
    else:
        done.lifted += 1


def _lift(port: SchedulerPort, row: QuotaEnding) -> None:
    plan = enforcement_plan.plan_unblock(port=port, account=row.account.name, source=row.drain_source)
    why = f"nothing demands it any more: budget {row.quota.name} of {row.quota.tenant.slug}"
    scheduler_blocks.carry_out_plan(port, plan, why, who=row.source)


def _list_over(moment: datetime) -> list[QuotaEnding]:
    """Also where an act that takes it back was left open, which nothing else may come to settle."""
    reasons = BlockReason.objects.filter(source__startswith=DRAIN_SOURCE, ended_at=None)
    numbers = [int(source.removeprefix(DRAIN_SOURCE)) for source in reasons.values_list("source", flat=True)]
    if not numbers:
        return []
    rows = QuotaEnding.objects.filter(pk__in=numbers, closed_at__isnull=False, next_at__lte=moment)
    return list(rows.select_related("account__cluster", "quota__tenant").order_by("account__cluster", "pk"))


def _put_off(rows: list[QuotaEnding], reason: str, done: BlockTally, moment: datetime) -> None:
    in_force = set(_drains_in_force(rows))
    for row in rows:
        if row.pk in in_force:
            QuotaEnding.objects.filter(pk=row.pk).update(
                error=reason, tries=row.tries + 1, next_at=moment + distance(row.tries)
            )
            done.troubles.append(f"{row.account}: {reason}")


def _drains_in_force(rows: list[QuotaEnding]) -> Iterator[int]:
    sources = {row.drain_source: row.pk for row in rows}
    reasons = BlockReason.objects.filter(source__in=sources, ended_at=None)
    yield from (sources[source] for source in reasons.values_list("source", flat=True))
