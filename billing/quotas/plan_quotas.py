"""Quotas that come with a plan: written with its version, and kept as a row of each tenant that is on it.

A tenant's row comes when the plan does, changes with the plan's version, and ends with the plan. An operator's own
quota of the same scope and period stands in its place as long as there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import transaction
from django.db.models import Q

from billing.catalog import billing_periods, plans
from billing.models import PlanQuota, PlanVersion, Quota, QuotaChange, QuotaSetBy, Subscription
from billing.models.quota_terms import LONGEST_NAME
from billing.quotas import quotas
from billing.quotas.quotas import OF_PLANS, columns_of, list_quotas, write_quota
from billing.quotas.terms import QuotaError, QuotaTerms
from billing.rules.days import Days
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant

LONGEST = LONGEST_NAME - len(OF_PLANS)
"""Characters of a name, which tenants read with `OF_PLANS` before it."""
OF_TENANTS = ("project", "user", "account", "cap", "recipients", "lends", "borrows_from")
"""What a quota of a plan cannot say."""


@transaction.atomic
def set_plan_quota(*, version: PlanVersion, name: str, terms: QuotaTerms) -> PlanQuota:
    """Have the version say the quota of this name; again with the same, nothing changes.

    Who is on the plan has it with the next pass, or when the version begins. Raises QuotaError for what cannot be so,
    and for any change of a version that is in use; RuleError for a value that none takes.
    """
    try:
        validate_slug(name)
    except ValidationError as error:
        raise QuotaError("quota-of-plan-name", most=LONGEST) from error
    if len(name) > LONGEST or name != name.lower():
        raise QuotaError("quota-of-plan-name", most=LONGEST)
    version = PlanVersion.objects.select_for_update(of=("self",)).select_related("plan").get(pk=version.pk)
    columns = columns_of(terms.checked_of_plan(version.plan))
    values = {column: value for column, value in columns.items() if column not in OF_TENANTS}
    row = PlanQuota.objects.filter(version=version, name=name).first()
    if row is not None and all(getattr(row, column) == value for column, value in values.items()):
        return row
    if plans.billed(version):
        raise QuotaError("quota-of-plan-in-use", version=version)
    row = row or PlanQuota(version=version, name=name)
    for column, value in values.items():
        setattr(row, column, value)
    row.save()
    have_looked_at(version)
    return row


def have_looked_at(version: PlanVersion) -> None:
    """Have the next pass look at whoever is on the version's plan, or will be."""
    tenants = Subscription.objects.filter(plan=version.plan_id).values_list("tenant", flat=True).distinct()
    QuotaChange.objects.bulk_create(QuotaChange(tenant_id=tenant) for tenant in tenants)


@dataclass(slots=True)
class _Owed:
    """What a tenant's plan says at a moment, by name, and when it may next say something else."""

    quotas: dict[str, PlanQuota] = field(default_factory=dict)
    plan: str = ""
    next_at: datetime | None = None


def follow_plans(tenants: Collection[int], *, moment: datetime) -> dict[int, datetime]:
    """Have these tenants' quotas be those of their plans; by tenant when that may change next. Four queries, and
    for those whose plans say some, or did, one more. Within the pass: again, nothing changes.
    """
    subscriptions = list(
        Subscription.objects.filter(Q(until=None) | Q(until__gt=moment), tenant__in=tenants)
        .select_related("tenant", "plan")
        .order_by("since")
    )
    listed = PlanQuota.objects.filter(version__plan__in={row.plan_id for row in subscriptions})
    by_version: dict[int, list[PlanQuota]] = defaultdict(list)
    for quota in listed.order_by("pk"):
        by_version[quota.version_id].append(quota)
    owed = _load_owed(subscriptions, by_version, moment)
    set_before = Quota.objects.in_force().filter(tenant__in=tenants, set_by=QuotaSetBy.PLAN)
    concerned = {*owed, *set_before.values_list("tenant", flat=True)}
    rows: dict[int, list[Quota]] = defaultdict(list)
    for row in list_quotas().filter(tenant__in=concerned) if concerned else ():
        rows[row.tenant_id].append(row)
    for tenant in sorted({*owed, *rows}):
        _follow(tenant, rows[tenant], owed.get(tenant, _Owed()), moment)
    return {tenant: one.next_at for tenant, one in owed.items() if one.next_at is not None}


def _load_owed(
    subscriptions: Sequence[Subscription], by_version: Mapping[int, list[PlanQuota]], moment: datetime
) -> dict[int, _Owed]:
    versions: dict[int, list[PlanVersion]] = defaultdict(list)
    if by_version:
        found = PlanVersion.objects.filter(plan__in={row.plan_id for row in subscriptions})
        for version in found.order_by("effective_from"):
            versions[version.plan_id].append(version)
    days = billing_periods.days_of({row.tenant for row in subscriptions}) if versions else {}
    owed: dict[int, _Owed] = defaultdict(_Owed)
    for row in subscriptions:
        if not any(version.pk in by_version for version in versions.get(row.plan_id, ())):
            continue
        one = owed[row.tenant_id]
        if row.since > moment:
            one.next_at = min(row.since, one.next_at or row.since)
            continue
        _add_present(one, row, versions[row.plan_id], by_version, days[row.tenant_id], moment)
    return owed


def _add_present(
    one: _Owed,
    row: Subscription,
    versions: Sequence[PlanVersion],
    by_version: Mapping[int, list[PlanQuota]],
    days: Days,
    moment: datetime,
) -> None:
    today = days.day_of(moment)
    begun = [version for version in versions if version.effective_from <= today]
    coming = [version for version in versions if version.effective_from > today]
    one.plan = f"plan {begun[-1]}" if begun else ""
    one.quotas = {
        OF_PLANS + quota.name: quota for quota in (by_version.get(begun[-1].pk, ()) if begun else ())
    }
    times = [row.until] if row.until else []
    times += [days.between(version.effective_from, None)[0][0] for version in coming[:1]]
    one.next_at = min([*times, *([one.next_at] if one.next_at else [])], default=None)


def _follow(tenant: int, rows: Sequence[Quota], owed: _Owed, moment: datetime) -> None:
    """Write what differs: nothing, most of the time."""
    plans_own = {row.name: row for row in rows if row.set_by == QuotaSetBy.PLAN}
    wanted = {name: _columns(quota) for name, quota in owed.quotas.items()}
    for name, values in list(wanted.items()):
        if quotas.is_replaced(Quota(tenant_id=tenant, name=name, **values), rows):
            del wanted[name]
    ended = [row for name, row in plans_own.items() if name not in wanted]
    changed = {name: values for name, values in wanted.items() if _differs(plans_own.get(name), values)}
    if not ended and not changed:
        return
    with acting_as(owed.plan or "plan"):
        for row in ended:
            row.ended_at = moment
            row.save(update_fields=["ended_at"])
        for name, values in changed.items():
            write_quota(
                plans_own.get(name), tenant=Tenant(pk=tenant), name=name, values=values, moment=moment
            )


def _differs(row: Quota | None, values: Mapping[str, Any]) -> bool:
    return row is None or any(getattr(row, column) != value for column, value in values.items())


def _columns(quota: PlanQuota) -> dict[str, Any]:
    columns = QuotaTerms.__dataclass_fields__
    values = {column: getattr(quota, column) for column in columns if column not in OF_TENANTS}
    return values | {"set_by": QuotaSetBy.PLAN, "recipients": [], "cap": None}
