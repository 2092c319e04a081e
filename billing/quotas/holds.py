"""Holding the waiting jobs of an account, or of one user in it, while a quota demands it; and only these released."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from billing.dunning import scheduler_blocks
from billing.dunning.scheduler_blocks import OtherTenantsBelowError
from billing.models import QuotaBlock
from billing.models.notices import BlockState
from billing.models.quota_blocks import QUOTA_SOURCE
from billing.quotas.counters import rows, sql
from billing.quotas.demands import BLOCKING
from clusters import blocks, enforcement_plan
from clusters.account_limits import takes_limits
from clusters.connectors.acts import ActRefusedError, NoAccountError
from clusters.enforcement_plan import LimitError, Request, SchedulerPort
from clusters.models import Act, ActKind
from portal.core.tenants.models import Tenant

NO_LIMITS = "slurm-limits-unsupported"
"""Said by versions of Slurm that take no limits over REST."""
EVERY = timedelta(minutes=1)
"""So often jobs that were submitted since are held, too."""


def carry_out(port: SchedulerPort, row: QuotaBlock, moment: datetime) -> BlockState:
    """What the row wants: a block of its account, or a hold of the jobs that wait there.

    Where the account cannot be blocked, its waiting jobs are held instead, again and again: the row says so and why.
    """
    if row.state == BlockState.LIFTING:
        if row.holds:
            _free_user(port, row)
        else:
            scheduler_blocks.carry_out_block(port, row, moment)
        return _release(port, row)
    if row.holds:
        state = _hold(port, row)
        _limit_user(port, row)
        return state
    row.holds_instead, row.error = False, ""
    try:
        return scheduler_blocks.carry_out_block(port, row, moment)
    except (OtherTenantsBelowError, ActRefusedError) as error:
        if isinstance(error, ActRefusedError) and error.code != NO_LIMITS:
            raise
        return _hold_instead(port, row, error)


def list_without_limits(tenant: Tenant, moment: datetime) -> list[str]:
    """The clusters of the tenant whose accounts cannot be blocked, as far as it is known. One query."""
    versions = rows(sql.API_VERSIONS, {"tenant": tenant.pk, "moment": moment})
    return [name for name, version in versions if not takes_limits(version)]


def _limit_user(port: SchedulerPort, row: QuotaBlock) -> None:
    """Keep GPU jobs of the user from starting between two looks, where Slurm takes limits; once, not fought over."""
    account = row.account
    if not row.user or blocks.is_in_force(account.cluster, account.name, source=row.source, user=row.user):
        return
    request = Request(kind=ActKind.BLOCK, account=account.name, user=row.user, source=row.source)
    try:
        plan = enforcement_plan.plan(port=port, request=request)
    except (ActRefusedError, NoAccountError):
        return  # holding has to do
    scheduler_blocks.carry_out_plan(port, plan, row.why, who=row.source)


def _free_user(port: SchedulerPort, row: QuotaBlock) -> None:
    if row.user and blocks.current_block(port.cluster, row.account.name, row.user) is not None:
        request = Request(kind=ActKind.UNBLOCK, account=row.account.name, user=row.user, source=row.source)
        plan = enforcement_plan.plan(port=port, request=request)
        why = f"nothing demands it any more: {row.cause}"
        scheduler_blocks.carry_out_plan(port, plan, why, who=row.source)


def _hold_instead(
    port: SchedulerPort, row: QuotaBlock, error: OtherTenantsBelowError | ActRefusedError
) -> BlockState:
    """The jobs that a block would keep from starting; those that start between two looks run."""
    try:
        port.acts.refuse_updates()
    except ActRefusedError:
        raise error from None  # as little as the block
    state = _hold(port, row, gpus_only=not row.submits)
    row.holds_instead = True
    row.error = f"{error} Its waiting jobs are held every minute instead; one that starts in between runs."
    return state


def _hold(port: SchedulerPort, row: QuotaBlock, *, gpus_only: bool = False) -> BlockState:
    request = Request(
        kind=ActKind.HOLD,
        account=row.account.name,
        user=row.user,
        source=row.source,
        gpus_only=gpus_only,
    )
    plan = enforcement_plan.plan(port=port, request=request)
    try:
        scheduler_blocks.carry_out_plan(port, plan, row.why, who=row.source)
    except LimitError:  # one may have started meanwhile: then nothing of it is left
        plan = enforcement_plan.plan(port=port, request=request)
        scheduler_blocks.carry_out_plan(port, plan, row.why, who=row.source)
    return BlockState.BLOCKED


def _release(port: SchedulerPort, row: QuotaBlock) -> BlockState:
    """What any quota holds and none demands to be held any more: two may hold one job."""
    acts = Act.objects.filter(cluster=port.cluster, account=row.account.name, kind=ActKind.HOLD)
    if not acts.filter(who__startswith=QUOTA_SOURCE).exists():
        return BlockState.LIFTED
    others = QuotaBlock.objects.filter(
        Q(holds=True) | Q(holds_instead=True), account=row.account_id, state__in=BLOCKING, ended_at=None
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
