"""Somebody pays for somebody else."""

from __future__ import annotations

from datetime import date

from billing.catalog import third_party_payers
from billing.models import Payer
from billing.rating import engine
from portal.core.tenants.models import Tenant


def pays(payer: Tenant, tenant: Tenant, since: str, until: str | None = None) -> Payer:
    """Have the one pay for the other from that day on, and rate what is touched."""
    row = third_party_payers.pay_for(
        payer=payer,
        tenant=tenant,
        since=date.fromisoformat(since),
        until=date.fromisoformat(until) if until else None,
    )
    engine.rate_tenants([tenant])
    return row
