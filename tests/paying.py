"""Somebody pays for somebody else."""

from __future__ import annotations

from datetime import date

from billing import payers, rating
from billing.models import Payer
from portal.tenants.models import Tenant


def pays(payer: Tenant, tenant: Tenant, since: str, until: str | None = None) -> Payer:
    """Have the one pay for the other from that day on, and rate what is touched."""
    row = payers.pay_for(
        payer=payer,
        tenant=tenant,
        since=date.fromisoformat(since),
        until=date.fromisoformat(until) if until else None,
    )
    rating.rate_tenants([tenant])
    return row
