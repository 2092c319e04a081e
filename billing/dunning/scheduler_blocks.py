"""Having accounts blocked through the acting door of clusters, and unblocked; tried until it is so.

Dunning and quotas are reasons beneath the block of an account: what each takes back is its own, and others keep the
block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import structlog

from billing.dunning import suspensions
from billing.dunning.messages import SENTENCES
from billing.dunning.suspensions import BLOCKING
from billing.models import BlockState, QuotaBlock, SuspendedAccount
from billing.models.notices import DUNNING
from billing.rating.ingest import unforeseen
from clusters import blocks, enforcement_plan, job_control
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, Plan, SchedulerPort
from clusters.models import Cluster
from portal.core.tenants.ownership import owners_of
from portal.errors import CodedError

AT_ONCE = 50
FIRST, LONGEST = timedelta(minutes=5), timedelta(hours=6)
"""To the next try of what could not be done; doubles with each."""

PortOpener = Callable[[Cluster], SchedulerPort]
Recorder = Callable[[Any, str, datetime], bool]
"""Writes down what was read back of a row; whether that was news."""

BlockRow = SuspendedAccount | QuotaBlock
"""One account that something demands to be blocked, or not any more."""
Carrier = Callable[[SchedulerPort, Any, datetime], BlockState]
"""Does what a row wants, and says what was read back."""


log = structlog.get_logger("billing.dunning")


class OtherTenantsBelowError(CodedError):
    """Blocking the account would block somebody else's below it; the message says whose."""

    sentences = SENTENCES


@dataclass(slots=True)
class BlockTally:
    """What was done, in numbers; `troubles` in sentences."""

    blocked: int = 0
    lifted: int = 0
    troubles: list[str] = field(default_factory=list)


def enforce_blocks(*, moment: datetime, opens: PortOpener) -> BlockTally:
    """Block and unblock what is wanted, cluster by cluster, and read it back; what fails is tried again later.

    Must not be called inside a transaction. By two at once, or again after a kill, each act is done once.
    """
    suspensions.follow_owners(moment=moment)
    rows = (
        SuspendedAccount.objects.filter(
            state__in=(BlockState.LIFTING, BlockState.REQUESTED), next_at__lte=moment
        )
        .select_related("account__cluster", "suspension", "suspension__invoice", "tenant")
        .order_by("account__cluster", "-state", "pk")[:AT_ONCE]
    )
    done = enforce_rows(rows, opens, moment, record=_record)
    suspensions.notify_tenants(moment=moment)
    return done


def enforce_rows(
    rows: Iterable[BlockRow],
    opens: PortOpener,
    moment: datetime,
    *,
    record: Recorder,
    carry_out: Carrier | None = None,
) -> BlockTally:
    """Carry out rows that are ordered by cluster; what fails is tried again at growing distances."""
    done = BlockTally()
    for cluster, accounts in groupby(rows, lambda row: row.account.cluster):
        _enforce_on(cluster, list(accounts), opens, done, moment, (record, carry_out or carry_out_block))
    return done


def _record(row: SuspendedAccount, state: str, moment: datetime) -> bool:
    del moment
    rows = SuspendedAccount.objects.filter(pk=row.pk, state=row.state)
    return bool(rows.update(state=state, error="", tries=0))


def _enforce_on(
    cluster: Cluster,
    rows: list[BlockRow],
    opens: PortOpener,
    done: BlockTally,
    moment: datetime,
    ways: tuple[Recorder, Carrier],
) -> None:
    try:
        with opens(cluster) as port:
            job_control.tidy(port=port)
            for row in rows:
                _try_account(port, row, done, moment, ways)
    except (LimitError, ConnectorError) as error:
        for row in rows:
            _record_failure(row, str(error), done, moment)
    except Exception as error:  # and no other cluster's
        log.exception("cluster failed", cluster=cluster.name)
        for row in rows:
            _record_failure(row, unforeseen(error), done, moment)


def _try_account(
    port: SchedulerPort, row: BlockRow, done: BlockTally, moment: datetime, ways: tuple[Recorder, Carrier]
) -> None:
    record, carry_out = ways
    try:
        state = carry_out(port, row, moment)
    except (LimitError, ConnectorError, OtherTenantsBelowError) as error:
        _record_failure(row, str(error), done, moment)
        return
    except Exception as error:  # whatever it is, it is no other account's
        log.exception("account failed", account=str(row.account))
        _record_failure(row, unforeseen(error), done, moment)
        return
    record(row, state, moment)
    done.blocked += state is BlockState.BLOCKED and row.state != BlockState.BLOCKED
    done.lifted += state is BlockState.LIFTED


def carry_out_block(port: SchedulerPort, row: BlockRow, moment: datetime) -> BlockState:
    """Block the account, or take its reason back."""
    return (_lift if row.state == BlockState.LIFTING else _block)(port, row, moment)


def _block(port: SchedulerPort, row: BlockRow, moment: datetime) -> BlockState:
    refuse_other_tenants(port, account=row.account.name, tenant=row.tenant_id, moment=moment)
    name, source = row.account.name, row.source
    plan = enforcement_plan.plan_block(port=port, account=name, submits=row.submits, source=source)
    carry_out_plan(port, plan, row.why, who=source)
    if not blocks.is_in_force(row.account.cluster, name, source=source):
        raise LimitError(" ".join(plan.notes))  # an act on it is not settled
    return BlockState.BLOCKED


def _lift(port: SchedulerPort, row: BlockRow, moment: datetime) -> BlockState:
    del moment
    if not _is_demanded_again(row):
        plan = enforcement_plan.plan_unblock(port=port, account=row.account.name, source=row.source)
        # With what somebody has changed meanwhile: nobody looks at this plan before it is carried out.
        why = "; ".join((f"nothing demands it any more: {row.cause}", *plan.notes))
        carry_out_plan(port, plan, why, who=row.source)
    return BlockState.LIFTED


def _is_demanded_again(row: BlockRow) -> bool:
    """By another suspension: all of them are one reason. A quota is a reason of its own."""
    rows = SuspendedAccount.objects.filter(account=row.account, state__in=BLOCKING, suspension__ended_at=None)
    return row.source == DUNNING and rows.exists()


def carry_out_plan(port: SchedulerPort, plan: Plan, reason: str, *, who: str) -> None:
    """Raises LimitError where an act of it was not read back."""
    done = job_control.carry_out(port=port, plan=plan, who=who, why=reason)
    if not done.good:
        message = next((act.error for act in done.acts if act.error), "It was not read back.")
        raise LimitError(message)


def refuse_other_tenants(port: SchedulerPort, *, account: str, tenant: int, moment: datetime) -> None:
    """A limit of an account holds for those below it, which may be somebody else's: OtherTenantsBelowError."""
    below = port.acts.below(account)
    owners = owners_of(port.cluster, below, at=moment) if below else {}
    others = {name: owner for name, owner in owners.items() if owner.pk != tenant}
    if others:
        name, owner = min(others.items())
        raise OtherTenantsBelowError("other-tenants-below", account=account, below=name, tenant=owner.slug)


def _record_failure(row: BlockRow, reason: str, done: BlockTally, moment: datetime) -> None:
    wait = min(FIRST * (1 << min(row.tries, 16)), LONGEST)
    rows = type(row).objects.filter(pk=row.pk, state=row.state)
    rows.update(error=reason, tries=row.tries + 1, next_at=moment + wait)
    done.troubles.append(f"{row.account}: {reason}")
    log.warning(
        "not blocked" if row.state == BlockState.REQUESTED else "not unblocked",
        account=str(row.account),
        why=reason,
    )
