"""Holding the waiting jobs of an account, or of one user in it, while a quota demands it; and only these released."""

from __future__ import annotations

from datetime import datetime, timedelta

from billing.dunning import scheduler_blocks
from billing.models import QuotaBlock
from billing.models.notices import BlockState
from billing.quotas.demands import BLOCKING
from clusters import enforcement_plan
from clusters.enforcement_plan import LimitError, Request, SchedulerPort
from clusters.models import ActKind

EVERY = timedelta(minutes=1)
"""So often jobs that were submitted since are held, too."""


def carry_out(port: SchedulerPort, row: QuotaBlock, moment: datetime) -> BlockState:
    """What the row wants: a block of its account, or a hold of the jobs that wait there."""
    if not row.holds:
        return scheduler_blocks.carry_out_block(port, row, moment)
    return _release(port, row) if row.state == BlockState.LIFTING else _hold(port, row)


def _hold(port: SchedulerPort, row: QuotaBlock) -> BlockState:
    request = Request(kind=ActKind.HOLD, account=row.account.name, user=row.user, source=row.source)
    plan = enforcement_plan.plan(port=port, request=request)
    try:
        scheduler_blocks.carry_out_plan(port, plan, row.why, who=row.source)
    except LimitError:  # one may have started meanwhile: then nothing of it is left
        plan = enforcement_plan.plan(port=port, request=request)
        scheduler_blocks.carry_out_plan(port, plan, row.why, who=row.source)
    return BlockState.BLOCKED


def _release(port: SchedulerPort, row: QuotaBlock) -> BlockState:
    """What any quota holds and none demands to be held any more: two may hold one job."""
    others = QuotaBlock.objects.filter(
        account=row.account_id, holds=True, state__in=BLOCKING, ended_at=None
    ).exclude(pk=row.pk)
    users = set(others.values_list("user", flat=True))
    if "" in users or row.user in users:
        return BlockState.LIFTED
    request = Request(
        kind=ActKind.RELEASE,
        account=row.account.name,
        user=row.user,
        source=row.source,
        keeps=frozenset(users),
    )
    plan = enforcement_plan.plan(port=port, request=request)
    scheduler_blocks.carry_out_plan(port, plan, f"nothing demands it any more: {row.cause}", who=row.source)
    return BlockState.LIFTED
