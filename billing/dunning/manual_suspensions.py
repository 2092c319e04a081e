"""A tenant suspended and resumed by hand: a manual block of each of its accounts, beside whatever else blocks them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from django.db.models import Q

from billing.dunning.scheduler_blocks import OtherTenantsBelowError, PortOpener, refuse_other_tenants
from clusters import enforcement_plan, job_control
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, Plan, Request
from clusters.models import Account, ActKind, Cluster
from portal.core.tenants.models import Ownership, Tenant


@dataclass(frozen=True, slots=True)
class SuspensionPlan:
    """What would be done on each cluster, and why nothing can be done on others, in sentences."""

    plans: tuple[tuple[Cluster, Plan], ...]
    notes: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        steps = [
            f"{cluster.name}: {text}"
            for cluster, plan in self.plans
            for text in (*(step.words for step in plan.steps), *plan.notes)
        ]
        return [*steps, *self.notes]

    @property
    def has_steps(self) -> bool:
        return any(plan.steps for _cluster, plan in self.plans)

    @property
    def fingerprint(self) -> str:
        """The same as long as the same would be done to the same clusters."""
        return " ".join(f"{cluster.pk}:{plan.fingerprint}" for cluster, plan in self.plans)


def plan_suspension(
    *, tenant: Tenant, kind: ActKind, submits: bool, moment: datetime, opens: PortOpener
) -> SuspensionPlan:
    """What blocking (or unblocking) the accounts that the tenant owns at that moment would do.

    A cluster that cannot be asked, and an account that has another tenant's below it, is a note.
    """
    plans: list[tuple[Cluster, Plan]] = []
    notes: list[str] = []
    for cluster, accounts in _owned(tenant, moment):
        try:
            with opens(cluster) as port:
                job_control.tidy(port=port)
                for account in accounts:
                    request = Request(kind=kind, account=account.name, submits=submits)
                    try:
                        if kind == ActKind.BLOCK:
                            refuse_other_tenants(port, account=account.name, tenant=tenant.pk, moment=moment)
                        plans.append((cluster, enforcement_plan.plan(port=port, request=request)))
                    except (LimitError, OtherTenantsBelowError) as error:
                        notes.append(f"{cluster.name}: {error}")
        except (LimitError, ConnectorError) as error:
            notes.append(f"{cluster.name}: {error}")
    return SuspensionPlan(tuple(plans), tuple(notes))


def carry_out(*, plan: SuspensionPlan, who: str, why: str, opens: PortOpener) -> list[str]:
    """Do just what the plan says; what could not be done, in sentences. Not to be called inside a transaction.

    Called again, what stands already is left. What one cluster refuses hinders no other.
    """
    troubles: list[str] = []
    for cluster, plans in groupby(plan.plans, lambda one: one[0]):
        try:
            with opens(cluster) as port:
                for _cluster, one in plans:
                    if one.steps:
                        done = job_control.carry_out(port=port, plan=one, who=who, why=why, exactly=True)
                        troubles += [f"{cluster.name}: {act.error}" for act in done.acts if act.error]
        except (LimitError, ConnectorError) as error:
            troubles.append(f"{cluster.name}: {error}")
    return troubles


def _owned(tenant: Tenant, moment: datetime) -> Iterable[tuple[Cluster, list[Account]]]:
    """The accounts that the tenant owns at that moment, by cluster."""
    rows = Ownership.objects.filter(
        Q(since=None) | Q(since__lte=moment), Q(until=None) | Q(until__gt=moment), tenant=tenant
    )
    accounts = [row.account for row in rows.select_related("account__cluster")]
    accounts.sort(key=lambda account: (account.cluster.name, account.name))
    for cluster, own in groupby(accounts, lambda account: account.cluster):
        yield cluster, list(own)
