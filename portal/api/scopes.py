"""What a key may do: scopes for keys of tenants and of operators, and the right in a tenant that each needs."""

from __future__ import annotations

from collections.abc import Mapping

from portal.core.tenants.access import Action

TENANT_SCOPES: Mapping[str, Action] = {
    "usage:read": Action.READ,
    "jobs:read": Action.READ,
    "invoices:read": Action.READ_INVOICES,
    "wallets:read": Action.READ_INVOICES,
}
"""Of a key that belongs to a tenant, each with what its maker's role has to allow."""

OPERATOR_SCOPES = ("ops:read",)
"""Of an operator's key. `ops:read` reads what tenants' scopes read, of every tenant."""

READING = frozenset(scope for scope in TENANT_SCOPES if scope.endswith(":read"))
