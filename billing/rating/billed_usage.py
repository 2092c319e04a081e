"""Which rated rows an invoice covers: those of periods up to its own, up to its `rated_through`.

What earlier invoices covered is billed already; what lies beyond the last is pending. Rated rows are
never marked, so this rule is all that tells billed from pending.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from billing.models import Invoice

Reach = list[tuple[datetime, int]]
"""Of each issued invoice the end of its period and the newest rated row that it covers."""


def of_tenants(ids: Iterable[int]) -> Mapping[int, Reach]:
    """All that has been issued to each of the tenants. One query."""
    reaches: dict[int, Reach] = defaultdict(list)
    issued = Invoice.objects.issued().filter(tenant__in=list(ids))
    for tenant, end, newest in issued.values_list("tenant", "period_end", "rated_through"):
        reaches[tenant].append((end, newest))
    return reaches


def before(invoice: Invoice) -> Reach:
    """What had been issued to the tenant when this invoice was; what one close issued stands beside each other."""
    earlier = Invoice.objects.issued().filter(
        tenant=invoice.tenant_id, rated_through__lt=invoice.rated_through
    )
    return list(earlier.values_list("period_end", "rated_through"))


def through(reach: Reach, period_end: datetime) -> int:
    """The newest rated row of a period ending then that is covered; 0 where none is."""
    return max((newest for end, newest in reach if end >= period_end), default=0)
