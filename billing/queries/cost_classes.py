"""From which class of cost on a list of the most expensive jobs of a period looks, instead of at all of its jobs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal

from django.db import connection

from billing.models import BillingPeriod
from portal.core.tenants.models import Tenant

DOWN = (0, 2, 6)
"""Classes below that of the rank where a page is thought to end: more of them where filters leave few jobs."""
STEPS = [Decimal(text) for text in ("1", "1.25", "1.6", "2", "2.5", "3.2", "4", "5", "6.3", "8")]
CLASSES = [step.scaleb(power) for power in range(10) for step in STEPS]
"""The least cost of each class from 1 on, as `cost_class` of portal/schema/months.sql has them."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Jobs of `lowest` and higher classes, of which all are that go on, hold all those that rank `rank` or higher."""

    lowest: int
    rank: Decimal


def bounds(tenant: Tenant, period: BillingPeriod, *, behind: Decimal | None) -> list[Bound]:
    """From which to look, one after the other, until a page of jobs ranks as high as its bound; then from none.

    `behind`: the rank that the page begins at. Empty where the period has few jobs. Not for jobs of several parts,
    whose sum no class bounds. One query.
    """
    with connection.cursor() as cursor:
        cursor.execute(_RANKS, {"tenant": tenant.pk, "period": period.pk})
        dearest, floor_cost = cursor.fetchone()
    if not dearest or floor_cost is None:
        return []
    start = cost_class((floor_cost if behind is None else min(behind, floor_cost)) / dearest)
    return [Bound(start - down, dearest * CLASSES[start - down - 1]) for down in DOWN if start > down]


def cost_class(units: Decimal) -> int:
    """Of a job that has ended; 0 of what is less than 1."""
    return bisect_right(CLASSES, units)


# What a unit of the jobs' dearest price costs, and what the job costs behind those that rating keeps of a price.
_RANKS = """
SELECT max(coalesce(c.unit_price, 1)), max(k.floor_cost * coalesce(c.unit_price, 1))
FROM billing_periodjobs k LEFT JOIN billing_price c ON c.id = k.price_id
WHERE k.tenant_id = %(tenant)s AND k.period_id = %(period)s
"""
