"""The budgets that the whole spend of a billing period is measured by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from django.db.models import OuterRef, Subquery

from billing.models import BillingPeriod, Quota, QuotaEvery, QuotaMeasure, QuotaPeriod
from billing.models.quota_terms import SCOPE
from billing.rules.money import Money
from billing.rules.period import civil_days
from billing.rules.quotas import Every
from portal.core.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class PeriodBudget:
    """What may be spent in the period, with what the one before left as it was last looked at."""

    name: str
    amount: Money


def list_period_budgets(
    tenant: Tenant, period: BillingPeriod, *, first: date, end: date
) -> list[PeriodBudget]:
    """Those on all of the tenant's money whose period is the billing period of the days [first, end): by amount.

    Pools are left out: they count what projects use beyond their own. In the scope of acting, one query.
    """
    every = [QuotaEvery.BILLING_PERIOD]
    if period.timezone == tenant.timezone and civil_days(first, Every.MONTH) == (first, end):
        every.append(QuotaEvery.MONTH)
    carried = QuotaPeriod.objects.filter(quota=OuterRef("pk"), start=period.start).values("carried")
    rows = Quota.objects.in_force().filter(
        **dict.fromkeys(SCOPE, ""),
        tenant=tenant,
        project=None,
        measure=QuotaMeasure.MONEY,
        every__in=every,
        lends=False,
    )
    columns = rows.annotate(carried=Subquery(carried[:1])).values_list("name", "unit", "amount", "carried")
    budgets = [
        PeriodBudget(name, Money(max(Fraction(amount) + Fraction(left or 0), Fraction(0)), unit))
        for name, unit, amount, left in columns.order_by("name")
    ]
    return sorted(budgets, key=lambda one: one.amount.amount)
