"""From which class of cost on lists of a period's most expensive or largest jobs look, instead of at all jobs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal

from django.db import connection

from billing.models import BillingPeriod
from billing.rules.meters import SECONDS_PER_HOUR
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
    return _bounds(floor_cost, behind, unit=dearest)


def hour_bounds(tenant: Tenant, period: BillingPeriod, *, behind: Decimal | None) -> list[Bound]:
    """As `bounds`, for jobs by GPU-hours, with ranks in GPU-seconds. Empty, too, where GPU-hours may have no price.

    What a job is sorted by are the hours of its only price, or the cost by several: so no job has more GPU-hours than
    this divided by the lowest price, where each of its GPU-hours has one. One query.
    """
    with connection.cursor() as cursor:
        cursor.execute(_HOURS, {"tenant": tenant.pk, "period": period.pk, "start": period.start})
        floor, lowest_price = cursor.fetchone()
    if not floor or not lowest_price:
        return []
    unit = SECONDS_PER_HOUR / min(lowest_price, Decimal(1))
    return _bounds(floor * unit, behind, unit=unit)


def _bounds(floor: Decimal | None, behind: Decimal | None, *, unit: Decimal | None) -> list[Bound]:
    """`unit`: the rank of what costs 1."""
    if not unit or floor is None:
        return []
    start = cost_class((floor if behind is None else min(behind, floor)) / unit)
    return [Bound(start - down, unit * CLASSES[start - down - 1]) for down in DOWN if start > down]


def cost_class(units: Decimal) -> int:
    """Of a job that has ended; 0 of what is less than 1."""
    return bisect_right(CLASSES, units)


# What a unit of the jobs' dearest price costs, and what the job costs behind those that rating keeps of a price.
_RANKS = """
SELECT max(coalesce(c.unit_price, 1)), max(k.floor_cost * coalesce(c.unit_price, 1))
FROM billing_periodjobs k LEFT JOIN billing_price c ON c.id = k.price_id
WHERE k.tenant_id = %(tenant)s AND k.period_id = %(period)s
"""

# Where rating's list of a price ends; and the lowest price of GPU-hours since the period began, as its jobs may run on.
# None where some have no price.
_HOURS = """
SELECT (SELECT max(floor_cost) FROM billing_periodjobs WHERE tenant_id = %(tenant)s AND period_id = %(period)s),
       CASE WHEN bool_and(c.id IS NOT NULL) THEN min(least(c.unit_price, f.unit_price)) END
FROM billing_billingperiod p JOIN billing_periodtotal t ON t.tenant_id = p.tenant_id AND t.period_id = p.id
LEFT JOIN billing_price c ON c.id = t.price_id
LEFT JOIN LATERAL (SELECT min(unit_price) AS unit_price FROM billing_pricecorrection WHERE price_id = c.id) f ON true
WHERE p.tenant_id = %(tenant)s AND p.start >= %(start)s AND t.resource = 'gpu' AND t.units <> 0
"""
