"""Who pays for a tenant, and for whom it pays, as both may know it: names and days."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from billing.models import Payer
from portal.core.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Paying:
    """`payer` pays for `user` during [since, until), days of the user's zone. `mine`: the user is who reads it."""

    user: str
    payer: str
    since: date
    until: date | None
    mine: bool


def list_paying(tenant: Tenant, payers: Iterable[Payer]) -> list[Paying]:
    """Of these, the newest first; not those who never came to pay."""
    rows = [
        Paying(row.tenant.name, row.payer.name, row.since, row.until, row.tenant_id == tenant.pk)
        for row in payers
        if row.until is None or row.until > row.since
    ]
    return sorted(rows, key=lambda one: (-one.since.toordinal(), one.user, one.payer))
