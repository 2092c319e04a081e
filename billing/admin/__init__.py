"""Billing in the admin. Whatever changes a price is done by the use cases, and rated again by a worker."""

from billing.admin import (
    closes,
    collecting,
    costs,
    dunning,
    invoices,
    manual,
    parking,
    payments,
    plans,
    tenants,
    terms,
)

__all__ = [
    "closes",
    "collecting",
    "costs",
    "dunning",
    "invoices",
    "manual",
    "parking",
    "payments",
    "plans",
    "tenants",
    "terms",
]
