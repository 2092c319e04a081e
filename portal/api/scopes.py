"""What a key may do: scopes for keys of tenants and of operators, and the right in a tenant that each needs."""

from __future__ import annotations

from collections.abc import Mapping

from portal.core.tenants.access import Action, Right

TENANT_SCOPES: Mapping[str, Action] = {
    "usage:read": Action.READ,
    "jobs:read": Action.READ,
    "invoices:read": Action.READ_INVOICES,
    "wallets:read": Action.READ_INVOICES,
    "payments:write": Action.PAY,
    "quotas:read": Action.READ_ALL,
    "quotas:write": Action.MANAGE,
    "webhooks:write": Action.MANAGE,
    "keys:write": Action.MANAGE,
    "subscription:write": Action.MANAGE,
}
"""Of a key that belongs to a tenant, each with what its maker's role has to allow."""

OPERATOR_SCOPES: Mapping[str, Right] = {
    "ops:read": Right.READ,
    "plans:write": Right.PLANS,
    "tenants:write": Right.TENANTS,
    "quotas:write": Right.TENANTS,
    "closes:write": Right.CLOSES,
    "credits:write": Right.CREDITS,
    "clusters:write": Right.CLUSTERS,
    "jobs:act": Right.JOBS,
    "payments:record": Right.PAYMENTS,
    "imports:write": Right.IMPORTS,
    "audit:read": Right.AUDIT,
    "usage:push": Right.IMPORTS,
    "webhooks:write": Right.SETTINGS,
}
"""Of an operator's key, each with the right that its maker's role has to have. `ops:read` reads what tenants' scopes
read, of every tenant."""

CLUSTER_SCOPES: Mapping[str, Right] = {"jobs:check": Right.CLUSTERS, "jobs:reserve": Right.CLUSTERS}
"""Of a key for the programs of one cluster. One that lies where users can read it asks, and nothing else: whoever may
reserve can use up any budget of the cluster for a while, so that key lies where the scheduler's own programs run."""

READING = frozenset(scope for scope in TENANT_SCOPES if scope.endswith(":read"))
