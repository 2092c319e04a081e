"""Billing in the admin. Whatever changes a price is done by the use cases, and rated again by a worker."""

from billing.admin import (
    approvals,
    closes,
    collecting,
    costs,
    dunning,
    invoices,
    manual,
    payments,
    plans,
    tenants,
    terms,
)

__all__ = [
    "approvals",
    "closes",
    "collecting",
    "costs",
    "dunning",
    "invoices",
    "manual",
    "payments",
    "plans",
    "tenants",
    "terms",
]
