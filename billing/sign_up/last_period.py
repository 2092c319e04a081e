"""What a tenant's last billing period cost, and would have cost on another public plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from billing.models import BillingPeriod, PeriodTotal, Plan, Subscription
from billing.rules.money import Money
from billing.sign_up.plan_changes import period_at
from billing.sign_up.policy import SignUpError
from billing.simulation import what_if
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import own_work_tables

MOST = 50_000
"""Jobs that are tried while somebody waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPeriod:
    """Amounts are before tax, one per currency. `reason` says why there are none."""

    period: BillingPeriod | None
    now: Sequence[Money] = ()
    offered: Sequence[Money] = ()
    reason: SignUpError | None = None


def compare_last_period(*, tenant: Tenant, plan: Plan, moment: datetime) -> LastPeriod:
    """Of the last period that is over: what is owed for it, and would be had the tenant been on that plan all along.

    By the rules of `what_if`, which operators try drafts with, at the prices that both plans had then. Runs in the
    scope of acting for the tenant, and keeps nothing.
    """
    present = period_at(tenant, moment=moment)
    period = BillingPeriod.objects.filter(tenant=tenant, end=present.start).first()
    if period is None or not PeriodTotal.objects.filter(tenant=tenant, period=period).exists():
        return LastPeriod(period=period, reason=SignUpError("last-period-unused"))
    then = Subscription.objects.filter(Q(until=None) | Q(until__gt=period.start), since__lt=period.end)
    if then.filter(tenant=tenant, plan__public=False).exists():
        return LastPeriod(period=period, reason=SignUpError("last-period-negotiated"))
    own_work_tables()
    result = what_if.simulate_offer(tenant=tenant, plan=plan, period=period, most=MOST)
    if result is None:
        return LastPeriod(period=period, reason=SignUpError("last-period-large", most=MOST))
    if result.unpriced:
        models = ", ".join(dict.fromkeys(model or resource for resource, model, _hours in result.unpriced))
        return LastPeriod(period=period, reason=SignUpError("last-period-unpriced", plan=plan, models=models))
    return LastPeriod(period=period, now=result.now, offered=result.tried)
