"""Billing in the admin. Whatever changes a price is done by the use cases, and rated again by a worker."""

from billing.admin import (
    approvals,
    charges,
    closes,
    costs,
    dunning,
    invoices,
    manual_lines,
    payments,
    plans,
    quotas,
    tenants,
    terms,
    wallets,
)

__all__ = [
    "approvals",
    "charges",
    "closes",
    "costs",
    "dunning",
    "invoices",
    "manual_lines",
    "payments",
    "plans",
    "quotas",
    "tenants",
    "terms",
    "wallets",
]
