"""Billing in the admin. Whatever changes a price is done by the use cases, and rated again by a worker."""

from billing.admin import invoices, plans, tenants

__all__ = ["invoices", "plans", "tenants"]
