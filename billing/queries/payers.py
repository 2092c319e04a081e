"""Who pays for a tenant, and for whom it pays, as both may know it: names and days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from portal.core.tenants.asking import Ask
from portal.core.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Paying:
    """`payer` pays for `user` during [since, until), days of the user's zone. `mine`: the user is who reads it."""

    user: str
    payer: str
    since: date
    until: date | None
    mine: bool


def ask_told(tenant: Tenant) -> Ask[list[Paying]]:
    """Within the tenant's scope, the newest first."""
    return Ask(_TOLD, [tenant.pk], lambda rows: [Paying(*row) for row in rows], kept=True)


_TOLD = """
SELECT tenant, payer, since, until, tenant_id = %s FROM billing_paying
WHERE until IS NULL OR until > since ORDER BY since DESC, tenant, payer
"""
