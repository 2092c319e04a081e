"""What surrounds every page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Area = Literal[
    "home",
    "overview",
    "explorer",
    "live",
    "status",
    "jobs",
    "plan",
    "quote",
    "efficiency",
    "search",
    "invoices",
    "wallet",
    "budgets",
    "team",
    "history",
    "api_keys",
    "billing_settings",
    "notifications",
    "webhooks",
    "payment",
    "tenants",
    "sign_ups",
    "unassigned",
    "clusters",
    "plans",
    "close",
    "transfers",
    "receivables",
    "reports",
    "quarantine",
    "reconciliation",
    "sealed_months",
    "operators",
    "operator_budgets",
    "brand",
    "",
]


@dataclass(frozen=True, kw_only=True)
class TenantLink:
    slug: str
    name: str


@dataclass(frozen=True, kw_only=True)
class SettingsTab:
    """A page of the settings area, as its tabs show it."""

    label: str
    url: str
    is_current: bool


@dataclass(frozen=True, kw_only=True)
class PageFrame:
    """What surrounds every page. `tenant` is None on operator pages and on a person's own."""

    user: str  # how the person is addressed: name or e-mail
    email: str
    operator: bool  # sees the operator's section and the admin
    tenants: tuple[TenantLink, ...]  # that the person may open, by name
    more_tenants: bool = False  # there are more than these
    tenant: TenantLink | None
    invoices: bool = False  # the person may see the tenant's invoices
    everybody: bool = False  # and usage of everybody, not their own alone
    audits: bool = False  # an operator whose role reads the history
    rights: frozenset[str] = (
        frozenset()
    )  # of an operator's role: "jobs", "credits" and so on, as in `access.Right`
    tabs: tuple[SettingsTab, ...] = ()  # of the settings area, on its pages
    wallets: bool = False  # the tenant has, or had, some: wherever it is looked at from
    area: Area

    @property
    def in_settings(self) -> bool:
        """Whether the page is one of the settings area."""
        return bool(self.tabs)
