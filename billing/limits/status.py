"""How much of each limit is held now: what runs, as it was last read from the clusters, and what was read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import ceil

from django.utils.translation import gettext as _

from billing.models import ConcurrencyLimit, LimitedAccount, LimitState
from clusters.models import Account, Cluster
from portal.core.tenants.models import Ownership, Project, Tenant
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "status.sql")

Held = Mapping[str, tuple[Fraction, int]]
"""By GPU model how many GPUs and jobs run, as the limits count them: to be rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStatus:
    """One account of a limit. `state` "": no worker has seen it yet; `note` and `error` in sentences."""

    cluster: str
    account: str
    gpus: int
    jobs: int
    state: str
    note: str
    error: str
    checked_at: datetime | None


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limit and what is held of it, by account: each account may hold as much."""

    limit: ConcurrencyLimit
    accounts: Sequence[AccountStatus]


def load_statuses(limits: Sequence[ConcurrencyLimit], *, moment: datetime) -> list[LimitStatus]:
    """Of each, in order; rows have their tenant and project loaded. One query."""
    accounts = {
        one.pk: statuses for one, statuses in _load(0, [limit.pk for limit in limits], moment).items()
    }
    return [LimitStatus(limit, accounts.get(limit.pk, ())) for limit in limits]


def list_statuses(tenant: Tenant, *, moment: datetime) -> list[LimitStatus]:
    """Of those in force of the tenant, by name. One query."""
    statuses = _load(tenant.pk, [], moment)
    for limit in statuses:
        limit.tenant = tenant
    return [LimitStatus(limit, accounts) for limit, accounts in statuses.items()]


def _load(
    tenant: int, limits: Sequence[int], moment: datetime
) -> Mapping[ConcurrencyLimit, list[AccountStatus]]:
    """By limit its accounts, by cluster and name."""
    owners: dict[
        ConcurrencyLimit, dict[Ownership, tuple[LimitedAccount, dict[str, tuple[Fraction, int]]]]
    ] = {}
    with prepared_cursor() as cursor:
        cursor.execute(sql.HELD, {"tenant": tenant, "limits": list(limits), "moment": moment})
        for limit, project, owner, account, cluster, row, model, gpus, whole, jobs in instances(
            cursor, ConcurrencyLimit, Project, Ownership, Account, Cluster, LimitedAccount
        ):
            limit.project = project if limit.project_id is not None else None
            accounts = owners.setdefault(limit, {})
            if owner.pk is None:
                continue
            owner.account, account.cluster = account, cluster
            _, held = accounts.setdefault(owner, (row, {}))
            if model is not None:
                before, number = held.get(model, (Fraction(0), 0))
                held[model] = before + Fraction(int(gpus), whole), number + jobs
    return {
        limit: [_account_status(limit, owner, row, held) for owner, (row, held) in accounts.items()]
        for limit, accounts in owners.items()
    }


def _account_status(
    limit: ConcurrencyLimit, owner: Ownership, row: LimitedAccount, held: Held
) -> AccountStatus:
    models = [limit.gpu_model] if limit.gpu_model else list(held)
    return AccountStatus(
        cluster=owner.account.cluster.name,
        account=owner.account.name,
        gpus=sum(ceil(held[model][0]) for model in models if model in held),
        jobs=sum(jobs for _gpus, jobs in held.values()),
        state=row.state or "",
        note=row.note or "",
        error=row.error or "",
        checked_at=row.checked_at,
    )


def limit_text(limit: ConcurrencyLimit) -> str:
    """`16 GPUs of h100 and 40 jobs`"""
    parts = []
    if limit.gpus is not None:
        parts.append(
            _("{number} GPUs of {model}").format(number=limit.gpus, model=limit.gpu_model)
            if limit.gpu_model
            else _("{number} GPUs").format(number=limit.gpus)
        )
    if limit.jobs is not None:
        parts.append(_("{number} jobs").format(number=limit.jobs))
    return _(" and ").join(parts)


def held_text(limit: ConcurrencyLimit, one: AccountStatus) -> str:
    """`12 of 16 GPUs, 3 of 40 jobs`"""
    parts = []
    if limit.gpus is not None:
        parts.append(_("{held} of {number} GPUs").format(held=one.gpus, number=limit.gpus))
    if limit.jobs is not None:
        parts.append(_("{held} of {number} jobs").format(held=one.jobs, number=limit.jobs))
    return ", ".join(parts)


def state_text(one: AccountStatus) -> str:
    """What the scheduler was read back to hold."""
    if one.error:
        return _("Not set yet")
    states = {LimitState.SET: _("Set"), LimitState.LIFTING: _("Being lifted")}
    return states[LimitState(one.state)] if one.state in states else _("To be set")


def scope_text(limit: ConcurrencyLimit) -> str:
    """`project nlp, cluster rhea`; `all accounts` where nothing narrows it."""
    names = {"account": _("account"), "cluster": _("cluster")}
    parts = [f"{_('project')} {limit.project.name or _('(none)')}"] if limit.project else []
    parts += [f"{label} {value}" for name, label in names.items() if (value := getattr(limit, name))]
    return ", ".join(parts) or _("all accounts")
