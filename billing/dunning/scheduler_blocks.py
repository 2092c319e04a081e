"""Having suspended tenants' accounts blocked through the acting door of clusters, and unblocked; tried until it is so.

Dunning is one reason beneath the block of an account: what it takes back is its own, and others keep the block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby

import structlog

from billing.dunning import suspensions
from billing.dunning.messages import SENTENCES
from billing.dunning.suspensions import BLOCKING
from billing.models import BlockState, SuspendedAccount
from billing.rating.ingest import unforeseen
from clusters import blocks, enforcement_plan, job_control
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, Plan, SchedulerPort
from clusters.models import Cluster
from portal.core.tenants.ownership import owners_of
from portal.errors import CodedError

DUNNING = "dunning"
"""Who acts, and the source of the reason."""
AT_ONCE = 50
FIRST, LONGEST = timedelta(minutes=5), timedelta(hours=6)
"""To the next try of what could not be done; doubles with each."""

PortOpener = Callable[[Cluster], SchedulerPort]

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
    done = BlockTally()
    rows = (
        SuspendedAccount.objects.filter(
            state__in=(BlockState.LIFTING, BlockState.REQUESTED), next_at__lte=moment
        )
        .select_related("account__cluster", "suspension", "suspension__invoice", "tenant")
        .order_by("account__cluster", "-state", "pk")[:AT_ONCE]
    )
    for cluster, accounts in groupby(rows, lambda row: row.account.cluster):
        _enforce_on(cluster, list(accounts), opens, done, moment)
    suspensions.notify_tenants(moment=moment)
    return done


def _enforce_on(
    cluster: Cluster, rows: list[SuspendedAccount], opens: PortOpener, done: BlockTally, moment: datetime
) -> None:
    try:
        with opens(cluster) as port:
            job_control.tidy(port=port)
            for row in rows:
                _try_account(port, row, done, moment)
    except (LimitError, ConnectorError) as error:
        for row in rows:
            _record_failure(row, str(error), done, moment)
    except Exception as error:  # and no other cluster's
        log.exception("cluster failed", cluster=cluster.name)
        for row in rows:
            _record_failure(row, unforeseen(error), done, moment)


def _try_account(port: SchedulerPort, row: SuspendedAccount, done: BlockTally, moment: datetime) -> None:
    act = _lift if row.state == BlockState.LIFTING else _block
    try:
        state = act(port, row, moment)
    except (LimitError, ConnectorError, OtherTenantsBelowError) as error:
        _record_failure(row, str(error), done, moment)
        return
    except Exception as error:  # whatever it is, it is no other account's
        log.exception("account failed", account=str(row.account))
        _record_failure(row, unforeseen(error), done, moment)
        return
    SuspendedAccount.objects.filter(pk=row.pk, state=row.state).update(state=state, error="", tries=0)
    done.blocked += state is BlockState.BLOCKED
    done.lifted += state is BlockState.LIFTED


def _block(port: SchedulerPort, row: SuspendedAccount, moment: datetime) -> BlockState:
    _refuse_others(port, row, moment)
    plan = enforcement_plan.plan_block(port=port, account=row.account.name, source=DUNNING)
    _carry_out(port, plan, f"{row.suspension.invoice} is not paid")
    if not blocks.is_in_force(row.account.cluster, row.account.name, source=DUNNING):
        raise LimitError(" ".join(plan.notes))  # an act on it is not settled
    return BlockState.BLOCKED


def _lift(port: SchedulerPort, row: SuspendedAccount, moment: datetime) -> BlockState:
    del moment
    again = SuspendedAccount.objects.filter(
        account=row.account, state__in=BLOCKING, suspension__ended_at=None
    )
    if not again.exists():
        plan = enforcement_plan.plan_unblock(port=port, account=row.account.name, source=DUNNING)
        _carry_out(port, plan, f"nothing demands it any more: {row.suspension.invoice}")
    return BlockState.LIFTED


def _carry_out(port: SchedulerPort, plan: Plan, reason: str) -> None:
    done = job_control.carry_out(port=port, plan=plan, who=DUNNING, why=reason)
    if not done.good:
        message = next((act.error for act in done.acts if act.error), "It was not read back.")
        raise LimitError(message)


def _refuse_others(port: SchedulerPort, row: SuspendedAccount, moment: datetime) -> None:
    """A limit of an account holds for those below it, which may be somebody else's."""
    below = port.acts.below(row.account.name)
    owners = owners_of(row.account.cluster, below, at=moment) if below else {}
    others = {name: owner for name, owner in owners.items() if owner.pk != row.tenant_id}
    if others:
        name, owner = min(others.items())
        raise OtherTenantsBelowError(
            "other-tenants-below", account=row.account.name, below=name, tenant=owner.slug
        )


def _record_failure(row: SuspendedAccount, reason: str, done: BlockTally, moment: datetime) -> None:
    wait = min(FIRST * (1 << min(row.tries, 16)), LONGEST)
    SuspendedAccount.objects.filter(pk=row.pk, state=row.state).update(
        error=reason, tries=row.tries + 1, next_at=moment + wait
    )
    done.troubles.append(f"{row.account}: {reason}")
    log.warning(
        "not suspended" if row.state == BlockState.REQUESTED else "not restored",
        account=str(row.account),
        why=reason,
    )
