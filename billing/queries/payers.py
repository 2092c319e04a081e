"""Who pays for a tenant, and for whom it pays, as both may know it: names and days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from portal.core.tenants.models import Tenant
from portal.prepared import prepared_cursor


@dataclass(frozen=True, slots=True)
class Paying:
    """`payer` pays for `user` during [since, until), days of the user's zone. `mine`: the user is who reads it."""

    user: str
    payer: str
    since: date
    until: date | None
    mine: bool


def paying(tenant: Tenant) -> list[Paying]:
    """Within the tenant's scope, the newest first. One query."""
    with prepared_cursor() as cursor:
        cursor.execute(_PAYING, [tenant.pk])
        return [Paying(*row) for row in cursor.fetchall()]


_PAYING = """
SELECT tenant, payer, since, until, tenant_id = %s FROM billing_paying
WHERE until IS NULL OR until > since ORDER BY since DESC, tenant, payer
"""
