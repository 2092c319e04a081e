"""Owners who change among public plans: from the next billing period on, so that nothing is rated again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db import transaction

from billing.catalog import billing_periods, subscriptions
from billing.models import BillingPeriod, Plan, PlanVersion, Subscription
from billing.rules.period import Period
from billing.sign_up.policy import SignUpError, list_public_plans
from portal.core import identifiers
from portal.core.tenants.models import Tenant

SECOND = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class PlanChoice:
    """What an owner may choose. `plans` are the public ones of the same currency without the present one."""

    present: Plan
    planned: Subscription | None  # the change that is still to come
    begins: datetime  # of the next billing period
    ends: (
        date | None
    )  # in the tenant's zone: where the operator ends the present plan, and none follows at once
    plans: Sequence[Plan]


def load_choice(tenant: Tenant, *, moment: datetime) -> PlanChoice | None:
    """None for a tenant on no plan, or on one that was agreed with the operator. At most five queries."""
    rows = list(tenant.subscriptions.select_related("plan").exclude(until__lte=moment).order_by("since"))
    present = next((row for row in rows if row.since <= moment), None)
    if present is None or not present.plan.public:
        return None
    planned = next((row for row in rows if row.since > moment), None)
    begins, zone = next_beginning(tenant, moment=moment), tenant.zone
    end = None if planned is not None and planned.since == present.until else present.until
    offered = list_public_plans(today=begins.astimezone(zone).date())
    offered = offered.filter(currency=present.plan.currency).exclude(pk=present.plan_id)
    return PlanChoice(
        present=present.plan,
        planned=planned,
        begins=begins,
        ends=end.astimezone(zone).date() if end else None,
        plans=() if end else list(offered),
    )


def next_beginning(tenant: Tenant, *, moment: datetime) -> datetime:
    """When the tenant's next billing period begins, stored or not. One or two queries."""
    return period_at(tenant, moment=moment).end


def period_at(tenant: Tenant, *, moment: datetime) -> Period:
    """The tenant's billing period then, stored or not. One or two queries."""
    period = BillingPeriod.objects.filter(tenant=tenant, start__lte=moment, end__gt=moment).first()
    if period is not None:
        return billing_periods.as_rule(period)
    missing = billing_periods.missing_periods([(tenant, moment, moment + SECOND)])
    return next(billing_periods.as_rule(period) for period in missing if period.start <= moment < period.end)


def version_at(plan: Plan, tenant: Tenant, *, moment: datetime) -> PlanVersion | None:
    """The version that holds for the tenant at that moment. One query."""
    day = moment.astimezone(tenant.zone).date()
    versions = plan.versions.filter(effective_from__lte=day).select_related("plan")
    return versions.order_by("-effective_from").first()


@dataclass(frozen=True, kw_only=True)
class PlanPreview:
    """The present plan beside another one, as both are on the day of the change."""

    choice: PlanChoice
    before: PlanVersion | None
    after: PlanVersion
    seen: str  # what was looked at: a change that says so is of nothing else


def load_preview(tenant: Tenant, *, plan: str, moment: datetime) -> PlanPreview:
    """What an owner looks at before the change. At most eight queries. Raises SignUpError as `change_plan` does."""
    choice = _refused(load_choice(tenant, moment=moment))
    return _preview(tenant, choice, _chosen(choice, plan))


def _preview(tenant: Tenant, choice: PlanChoice, chosen: Plan) -> PlanPreview:
    after = version_at(chosen, tenant, moment=choice.begins)
    if after is None:
        raise SignUpError("plan-change-private", plan=chosen)
    return PlanPreview(
        choice=choice,
        before=version_at(choice.present, tenant, moment=choice.begins),
        after=after,
        seen=f"{choice.begins:%Y-%m-%dT%H:%M:%SZ}.{identifiers.write('ver', after.pk)}",
    )


def _chosen(choice: PlanChoice, plan: str) -> Plan:
    if plan == choice.present.name:
        raise SignUpError("plan-change-same", plan=plan)
    chosen = next((row for row in choice.plans if row.name == plan), None)
    if chosen is None:
        raise SignUpError("plan-change-private", plan=plan[:50])
    return chosen


@transaction.atomic
def change_plan(*, tenant: Tenant, plan: str, moment: datetime, seen: str = "") -> Subscription:
    """Have the tenant be on that public plan from its next billing period on; a change still to come is replaced.

    Again, nothing changes. With `seen`, it is the change that a preview showed. Raises SignUpError for another one,
    for a plan that is not offered, a tenant whose plan was agreed with the operator, or for whom the operator has
    planned a change or an end; and PlanError as `subscriptions.subscribe` does.
    """
    choice = _choice(tenant, moment)
    chosen = _chosen(choice, plan)
    if seen and seen != _preview(tenant, choice, chosen).seen:
        raise SignUpError("plan-change-moved")
    if choice.planned is not None:
        if (choice.planned.plan, choice.planned.since) == (chosen, choice.begins):
            return choice.planned
        subscriptions.withdraw(subscription=choice.planned)
    return subscriptions.subscribe(tenant=tenant, plan=chosen, since=choice.begins)


@transaction.atomic
def withdraw_change(*, tenant: Tenant, moment: datetime) -> None:
    """Stay on the present plan. Raises SignUpError where no change is planned, or the operator has planned it."""
    choice = _choice(tenant, moment)
    if choice.planned is None:
        raise SignUpError("plan-change-none")
    subscriptions.withdraw(subscription=choice.planned)


def _choice(tenant: Tenant, moment: datetime) -> PlanChoice:
    """Under the tenant's lock; a change to a plan that is not public, and an end, are the operator's."""
    lock(tenant)
    return _refused(load_choice(tenant, moment=moment))


def lock(tenant: Tenant) -> None:
    """What owners decide about the plan waits for each other."""
    Tenant.objects.select_for_update(no_key=True).only("pk").get(pk=tenant.pk)


def _refused(choice: PlanChoice | None) -> PlanChoice:
    """The choice, where there is one."""
    if choice is None:
        raise SignUpError("plan-change-negotiated")
    if choice.ends is not None:
        raise SignUpError("plan-change-ending", day=choice.ends)
    if choice.planned is not None and not choice.planned.plan.public:
        raise SignUpError("plan-change-operator", plan=choice.planned.plan)
    return choice
