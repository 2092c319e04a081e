"""What each project used in a period, as far as whoever reads it may see projects."""

from __future__ import annotations

from billing.models import BillingPeriod
from billing.queries import overview
from billing.queries.overview import Use
from portal.core.tenants.models import Tenant


def list_uses(tenant: Tenant, period: BillingPeriod) -> list[Use]:
    """By project, GPU model and verdict, the most expensive first, at the prices of single units. One query."""
    rows, prices = overview.load_totals(tenant, [period])
    uses, _largest = overview.uses_of(rows, prices, None)
    return uses
