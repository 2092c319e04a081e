"""How much of each limit is held now: what runs, as it was last read from the clusters, and what was read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import ceil

from django.db.models import Case, Count, Q, Sum, When
from django.utils.translation import gettext as _

from billing.limits.limits import in_scope, load_accounts
from billing.models import ConcurrencyLimit, LimitedAccount, LimitState, RatedJob
from clusters.models import Cluster, ClusterKind

Running = Mapping[tuple[str, str], Mapping[str, tuple[int, int]]]
"""By cluster and account, and by GPU model, how many GPUs and jobs run."""


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
    """Of each, in order; rows have their tenant and project loaded. Three queries."""
    tenants = {limit.tenant_id for limit in limits}
    owned = load_accounts(tenants, moment=moment)
    rows = LimitedAccount.objects.filter(tenant__in=tenants, ended_at=None)
    by_account = {row.account_id: row for row in rows}
    running = {tenant: dict[tuple[str, str], dict[str, tuple[int, int]]]() for tenant in tenants}
    for tenant, cluster, account, model, gpus, jobs in _load_running(tenants):
        running[tenant].setdefault((cluster, account), {})[model] = gpus, jobs
    return [
        LimitStatus(
            limit,
            [
                _account_status(limit, row.account.cluster.name, row.account.name, by_account.get(row.account_id),
                                running[limit.tenant_id])
                for row in in_scope(limit, owned.get(limit.tenant_id, ()))
            ],
        )
        for limit in limits
    ]  # fmt: skip


def _load_running(tenants: Iterable[int]) -> Iterable[tuple[int, str, str, str, int, int]]:
    """GPUs as the limits count them: a MIG slice is one, of Slurm's shards as many as make one up; rounded up."""
    rows = RatedJob.objects.runs().filter(tenant__in=list(tenants), ended=None, started__isnull=False)
    by = ("tenant_id", "cluster", "account", "gpu_model")
    shards = Q(mig_profile="", cluster__in=Cluster.objects.filter(kind=ClusterKind.SLURM).values("name"))
    share = {of: Case(When(shards, then=of), default=1) for of in ("share_num", "share_den")}
    grouped = rows.order_by().values(*by, part=share["share_num"], whole=share["share_den"])
    counted = grouped.annotate(held=Sum("gpus"), number=Count("record_id"))
    totals: dict[tuple[int, str, str, str], tuple[Fraction, int]] = {}
    for *group, part, whole, held, number in counted.values_list(*by, "part", "whole", "held", "number"):
        before = totals.get(tuple(group), (Fraction(0), 0))
        totals[tuple(group)] = before[0] + Fraction(held * part, whole), before[1] + number
    return [(*group, ceil(gpus), jobs) for group, (gpus, jobs) in totals.items()]


def _account_status(
    limit: ConcurrencyLimit, cluster: str, account: str, row: LimitedAccount | None, running: Running
) -> AccountStatus:
    held = running.get((cluster, account), {})
    models = [limit.gpu_model] if limit.gpu_model else list(held)
    return AccountStatus(
        cluster=cluster,
        account=account,
        gpus=sum(held[model][0] for model in models if model in held),
        jobs=sum(jobs for _gpus, jobs in held.values()),
        state=row.state if row else "",
        note=row.note if row else "",
        error=row.error if row else "",
        checked_at=row.checked_at if row else None,
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
