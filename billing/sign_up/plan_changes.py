"""Owners who change among public plans: from the next billing period on, so that nothing is rated again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db import transaction

from billing.catalog import billing_periods, subscriptions
from billing.models import BillingPeriod, Plan, PlanVersion, Subscription
from billing.sign_up.policy import SignUpError, list_public_plans
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
    period = BillingPeriod.objects.filter(tenant=tenant, start__lte=moment, end__gt=moment).first()
    if period is not None:
        return billing_periods.as_rule(period).end
    missing = billing_periods.missing_periods([(tenant, moment, moment + SECOND)])
    return next(
        billing_periods.as_rule(period).end for period in missing if period.start <= moment < period.end
    )


def version_at(plan: Plan, tenant: Tenant, *, moment: datetime) -> PlanVersion | None:
    """The version that holds for the tenant at that moment. One query."""
    day = moment.astimezone(tenant.zone).date()
    versions = plan.versions.filter(effective_from__lte=day).select_related("plan")
    return versions.order_by("-effective_from").first()


@transaction.atomic
def change_plan(*, tenant: Tenant, plan: str, moment: datetime) -> Subscription:
    """Have the tenant be on that public plan from its next billing period on; a change still to come is replaced.

    Again, nothing changes. Raises SignUpError for a plan that is not offered, a tenant whose plan was agreed with the
    operator, or for whom the operator has planned a change or an end; and PlanError as `subscriptions.subscribe` does.
    """
    choice = _choice(tenant, moment)
    if plan == choice.present.name:
        raise SignUpError("plan-change-same", plan=plan)
    chosen = next((row for row in choice.plans if row.name == plan), None)
    if chosen is None:
        raise SignUpError("plan-change-private", plan=plan[:50])
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
    Tenant.objects.select_for_update(no_key=True).only("pk").get(pk=tenant.pk)
    choice = load_choice(tenant, moment=moment)
    if choice is None:
        raise SignUpError("plan-change-negotiated")
    if choice.ends is not None:
        raise SignUpError("plan-change-ending", day=choice.ends)
    if choice.planned is not None and not choice.planned.plan.public:
        raise SignUpError("plan-change-operator", plan=choice.planned.plan)
    return choice
