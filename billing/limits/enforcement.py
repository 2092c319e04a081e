"""Having schedulers hold limits: what each account's limits come to, written through the acting door, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Case, When

from billing.dunning.scheduler_blocks import FIRST, LONGEST, PortOpener
from billing.limits.limits import LimitTermsError, in_scope, list_limits, load_accounts
from billing.models import ConcurrencyLimit, LimitedAccount, LimitState
from billing.rating.ingest import unforeseen
from clusters import enforcement_plan, job_control
from clusters.connectors.acts import Ceiling
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, Plan, SchedulerPort
from clusters.models import Cluster
from portal.core.locks import Work, alone
from portal.core.tenants.ownership import owners_of
from portal.sentences import sentence

AT_ONCE = 50
SOURCE = "limits"
"""Who acts, in the history of what was done to schedulers."""
CHECK_EVERY = timedelta(hours=1)
"""So often what was set is read again, to tell of what somebody has changed by hand."""

log = structlog.get_logger("billing.limits")


@dataclass(slots=True)
class LimitTally:
    """What was done, in numbers; `troubles` in sentences."""

    set: int = 0
    lifted: int = 0
    troubles: list[str] = field(default_factory=list)


def enforce_limits(*, moment: datetime, opens: PortOpener) -> LimitTally:
    """Have the present limits written, read back and lifted, cluster by cluster; what fails is tried again later.

    Must not be called inside a transaction. Of two at once, one does nothing; again, nothing is sent.
    """
    done = LimitTally()
    with alone(Work.LIMITING) as ours:
        if not ours:
            return done
        follow_limits(moment=moment)
        for cluster, accounts in groupby(_list_due(moment), lambda row: row.account.cluster):
            _enforce_on(cluster, list(accounts), opens, done, moment)
    return done


def _list_due(moment: datetime) -> list[LimitedAccount]:
    """By cluster: what is to be changed first, then what is read again, the longest waiting first."""
    rows = LimitedAccount.objects.filter(ended_at=None, next_at__lte=moment)
    rows = rows.select_related("account__cluster", "tenant")
    is_read_again = Case(When(state=LimitState.SET, then=1), default=0)
    due = list(rows.order_by(is_read_again, "next_at", "pk")[:AT_ONCE])
    return sorted(due, key=lambda row: (row.account.cluster_id, row.state == LimitState.SET, row.pk))


@transaction.atomic
def follow_limits(*, moment: datetime) -> None:
    """Have a row for each account that limits are of, with the smallest of each. Three queries if nothing changed."""
    limits = list(list_limits())
    current = {row.account_id: row for row in LimitedAccount.objects.filter(ended_at=None)}
    if not limits and not current:
        return
    owned = load_accounts({limit.tenant_id for limit in limits}, moment=moment)
    demands: dict[int, dict[str, Any]] = {}
    tenants: dict[int, int] = {}
    for limit in limits:
        for ownership in in_scope(limit, owned.get(limit.tenant_id, ())):
            _add(demands.setdefault(ownership.account_id, {"gpus": {}, "jobs": None}), limit)
            tenants[ownership.account_id] = limit.tenant_id
    for account, demand in demands.items():
        row = current.get(account)
        if row is None:
            LimitedAccount.objects.create(
                tenant_id=tenants[account], account_id=account, began_at=moment, next_at=moment, **demand
            )
        elif row.demand != demand or row.tenant_id != tenants[account] or row.state == LimitState.LIFTING:
            _request(row, demand | {"tenant_id": tenants[account]}, LimitState.REQUESTED, moment)
    for account, present in current.items():
        if account not in demands and present.state != LimitState.LIFTING:
            _request(present, {}, LimitState.LIFTING, moment)


def _add(demand: dict[str, Any], limit: ConcurrencyLimit) -> None:
    if limit.gpus is not None:
        gpus = demand["gpus"]
        gpus[limit.gpu_model] = min(limit.gpus, gpus.get(limit.gpu_model, limit.gpus))
    if limit.jobs is not None:
        demand["jobs"] = min(limit.jobs, demand["jobs"] or limit.jobs)


def _request(row: LimitedAccount, values: Mapping[str, Any], state: LimitState, moment: datetime) -> None:
    for name, value in {**values, "state": state, "next_at": moment, "tries": 0, "error": ""}.items():
        setattr(row, name, value)
    row.save()


def _enforce_on(
    cluster: Cluster, rows: Sequence[LimitedAccount], opens: PortOpener, done: LimitTally, moment: datetime
) -> None:
    try:
        with opens(cluster) as port:
            job_control.tidy(port=port)
            for row in rows:
                _try_account(port, row, done, moment)
    except (LimitError, ConnectorError) as error:
        for row in rows:
            _record_failure(row, sentence(error), done, moment)
    except Exception as error:  # and no other cluster's
        log.exception("cluster failed", cluster=cluster.name)
        for row in rows:
            _record_failure(row, unforeseen(error), done, moment)


def _try_account(port: SchedulerPort, row: LimitedAccount, done: LimitTally, moment: datetime) -> None:
    try:
        note = _enforce(port, row, moment)
    except (LimitError, ConnectorError, LimitTermsError) as error:
        _record_failure(row, sentence(error), done, moment)
        return
    except Exception as error:  # whatever it is, it is no other account's
        log.exception("account failed", account=str(row.account))
        _record_failure(row, unforeseen(error), done, moment)
        return
    is_lifted = row.state == LimitState.LIFTING
    LimitedAccount.objects.filter(pk=row.pk, state=row.state).update(
        state=row.state if is_lifted else LimitState.SET,
        ended_at=moment if is_lifted else None,
        checked_at=moment,
        note=note,
        error="",
        tries=0,
        next_at=moment + CHECK_EVERY,
    )
    done.lifted += is_lifted
    done.set += row.state == LimitState.REQUESTED


def _enforce(port: SchedulerPort, row: LimitedAccount, moment: datetime) -> str:
    """Set what is demanded now; what people are told of it beside."""
    ceiling = None if row.state == LimitState.LIFTING else Ceiling(gpus=row.gpus, jobs=row.jobs)
    if ceiling is not None:
        _refuse_others(port, row, moment)
    name = row.account.name
    plan = enforcement_plan.plan_limit(port=port, account=name, ceiling=ceiling)
    if plan.steps:
        why = "nothing demands it any more" if ceiling is None else f"limits of {row.tenant.slug}"
        _carry_out(port, plan, why)
    elif any(act.target == f"account {name}" for act in job_control.unsettled(port.cluster)):
        raise LimitError(" ".join(plan.notes))
    return " ".join(plan.notes)


def _carry_out(port: SchedulerPort, plan: Plan, why: str) -> None:
    done = job_control.carry_out(port=port, plan=plan, who=SOURCE, why=why)
    if not done.good:
        raise LimitError(next((act.error for act in done.acts if act.error), "It was not read back."))


def _refuse_others(port: SchedulerPort, row: LimitedAccount, moment: datetime) -> None:
    """A limit of an account holds for those below it, which may be somebody else's."""
    below = port.acts.below(row.account.name)
    owners = owners_of(row.account.cluster, below, at=moment) if below else {}
    others = {name: owner for name, owner in owners.items() if owner.pk != row.tenant_id}
    if others:
        name, owner = min(others.items())
        raise LimitTermsError("limit-others-below", account=row.account.name, below=name, tenant=owner.slug)


def _record_failure(row: LimitedAccount, reason: str, done: LimitTally, moment: datetime) -> None:
    wait = min(FIRST * (1 << min(row.tries, 16)), LONGEST)
    LimitedAccount.objects.filter(pk=row.pk, state=row.state).update(
        error=reason, tries=row.tries + 1, next_at=moment + wait
    )
    done.troubles.append(f"{row.account}: {reason}")
    log.warning("limits not set", account=str(row.account), why=reason)
