"""Having the blocks that quotas demand carried out and undone; and the operator's word that lets all go."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import BigIntegerField, Case, CharField, Exists, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Cast, Concat, Replace

from billing.catalog.tenant_lock import lock
from billing.dunning import scheduler_blocks
from billing.dunning.scheduler_blocks import BlockTally, PortOpener
from billing.models import Quota, QuotaBlock, QuotaBlockState, QuotaChange, QuotaRelease
from billing.models.quota_blocks import QUOTA_SOURCE
from billing.quotas import drains, holds
from billing.quotas.terms import QuotaError
from clusters.models import Account, Act, ActKind, BlockReason
from portal.core.events import events
from portal.core.events.events import Fact
from portal.core.events.models import EventType
from portal.core.tenants.models import Tenant

AT_ONCE = 200
EVENTS = {
    QuotaBlockState.BLOCKED: EventType.QUOTA_BLOCKED,
    QuotaBlockState.LIFTED: EventType.QUOTA_LIFTED,
}


def enforce_blocks(*, moment: datetime, opens: PortOpener) -> BlockTally:
    """Block and unblock what is demanded, cluster by cluster, and read it back; what fails is tried again later.

    What is demanded now is done, not what was demanded meanwhile: a row that was never sent is dropped unsent. Must
    not be called inside a transaction. By two at once, or again after a kill, each act is done once.
    """
    _drop_unsent(moment)
    _find_orphans(moment)
    to_do = Q(state__in=(QuotaBlockState.LIFTING, QuotaBlockState.REQUESTED))
    to_do |= Q(holds=True, state=QuotaBlockState.BLOCKED)  # jobs that have come since
    to_do |= Q(holds_instead=True, state=QuotaBlockState.BLOCKED)
    rows = QuotaBlock.objects.filter(to_do, ended_at=None, next_at__lte=moment)
    rows = rows.select_related("account__cluster", "quota", "tenant")
    is_repeated = Case(When(state=QuotaBlockState.BLOCKED, then=1), default=0)
    due = list(rows.order_by(is_repeated, "next_at", "pk")[:AT_ONCE])  # what has changed first
    due.sort(
        key=lambda row: (row.account.cluster_id, row.state == QuotaBlockState.BLOCKED, row.state, row.pk)
    )
    done = scheduler_blocks.enforce_rows(due, opens, moment, record=_record, carry_out=holds.carry_out)
    drains.lift_drains(moment=moment, opens=opens, done=done)
    return done


def list_placed() -> QuerySet[BlockReason]:
    """The reasons that stand beneath blocks for the quota of a row of `QuotaBlock`, within whose query it is."""
    return BlockReason.objects.filter(
        block__cluster=OuterRef("account__cluster"),
        block__account=OuterRef("account__name"),
        source=Concat(Value(QUOTA_SOURCE), Cast(OuterRef("quota"), CharField())),
        ended_at=None,
    )


def _drop_unsent(moment: datetime) -> None:
    """Rows to be lifted whose account the scheduler was never told of: there is nothing to undo."""
    held = Act.objects.filter(
        cluster=OuterRef("account__cluster"),
        account=OuterRef("account__name"),
        kind=ActKind.HOLD,
        who__startswith=QUOTA_SOURCE,  # the last quota that held a job releases it, whichever did it
    )
    may_hold = (Q(holds=True) | Q(holds_instead=True)) & Exists(held)
    rows = QuotaBlock.objects.filter(
        ~Exists(list_placed()), ~may_hold, state=QuotaBlockState.LIFTING, ended_at=None
    )
    for row in rows.select_related("account__cluster")[:AT_ONCE]:
        _record(row, QuotaBlockState.LIFTED, moment, silent=True)


def _find_orphans(moment: datetime) -> None:
    """Reasons of quotas beneath a block that no row of ours stands for: a row each, which has them lifted.

    A worker that began to block when the block was no longer demanded, or died, leaves such a reason behind.
    """
    reasons = BlockReason.objects.filter(source__startswith=QUOTA_SOURCE, ended_at=None, lifted_by=None)
    ours = QuotaBlock.objects.filter(
        account__cluster=OuterRef("block__cluster"),
        account__name=OuterRef("block__account"),
        quota=Cast(Replace(OuterRef("source"), Value(QUOTA_SOURCE), Value("")), BigIntegerField()),
        ended_at=None,
    )
    for reason in reasons.filter(~Exists(ours)).select_related("block")[:AT_ONCE]:
        quota = Quota.objects.get(pk=int(reason.source.removeprefix(QUOTA_SOURCE)))
        account = Account.objects.get(cluster=reason.block.cluster_id, name=reason.block.account)
        QuotaBlock.objects.bulk_create(
            [
                QuotaBlock(
                    tenant_id=quota.tenant_id,
                    quota=quota,
                    account=account,
                    submits=reason.submits,
                    holds=bool(reason.block.user),
                    user=reason.block.user,
                    state=QuotaBlockState.LIFTING,
                    why=f"budget {quota.name}: it was blocked after it was not demanded any more",
                    began_at=moment,
                    next_at=moment,
                )
            ],
            ignore_conflicts=True,
        )


@transaction.atomic
def _record(row: QuotaBlock, state: str, moment: datetime, *, silent: bool = False) -> bool:
    """Write down what was read back, with its event; whether it was news."""
    ended = moment if state == QuotaBlockState.LIFTED else None
    looks_again = not ended and (row.holds or row.holds_instead)
    changed = QuotaBlock.objects.filter(pk=row.pk, state=row.state, ended_at=None).update(
        state=state,
        ended_at=ended,
        holds_instead=row.holds_instead,
        error=row.error if row.holds_instead and not ended else "",
        tries=0,
        next_at=moment + holds.EVERY if looks_again else row.next_at,
    )
    silent = silent or state == row.state  # held again
    if changed and ended:
        QuotaChange.objects.create(tenant_id=row.tenant_id)  # another action may wait for the end of this one
    if changed and not silent:
        what = f"{row.account.cluster.name}/{row.account.name}"[:40]
        events.record_many(
            [
                Fact(
                    type=EVENTS[QuotaBlockState(state)],
                    kind="quo",
                    key=row.quota_id,
                    state=what,
                    tenant=row.tenant_id,
                )
            ]
        )
    return bool(changed)


@transaction.atomic
def release_quotas(
    *, tenant: Tenant, until: datetime, reason: str, by: str, moment: datetime
) -> QuotaRelease:
    """Nothing of the tenant is blocked by a quota until then; blocks that stand are lifted with the next pass.

    A second release holds beside the first: the later end counts. Raises QuotaError for an end that is over, and
    without a reason.
    """
    tenant = lock(tenant)
    if until <= moment:
        raise QuotaError("quota-release-past", until=f"{until:%Y-%m-%dT%H:%M:%SZ}")
    if not reason.strip():
        raise QuotaError("quota-release-reason")
    row = QuotaRelease.objects.create(
        tenant=tenant, until=until, reason=reason.strip()[:500], released_by=by, released_at=moment
    )
    QuotaChange.objects.create(tenant=tenant)
    return row
