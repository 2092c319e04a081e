"""What surrounds every page, and the small parts that all pages share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Area = Literal[
    "overview",
    "live",
    "jobs",
    "quote",
    "efficiency",
    "invoices",
    "wallet",
    "api_keys",
    "payment",
    "tenants",
    "unassigned",
    "clusters",
    "plans",
    "close",
    "transfers",
    "receivables",
    "reports",
    "quarantine",
    "reconciliation",
    "",
]


@dataclass(frozen=True, kw_only=True)
class Fact:
    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Tile:
    label: str  # "Spend this period"
    value: str  # "$84,366.49"
    note: str  # "vs. $90,021.11 in the same days of October"
    change: str = ""  # "−6.3 %"
    direction: Literal["up", "down", ""] = ""
    href: str = ""  # where the note leads


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A line drawing in a field of `width` × `height`, y downwards; each text is points of SVG, or empty."""

    line: str  # what is known
    dashed: str = ""  # what is expected
    band: str = ""  # a polygon around it
    high: str = ""  # of the axes, as shown
    first: str = ""
    last: str = ""
    width: int = 600
    height: int = 200


@dataclass(frozen=True, kw_only=True)
class TenantLink:
    slug: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Shell:
    """What surrounds every page. `tenant` is None on operator pages and on a person's own."""

    user: str  # how the person is addressed: name or e-mail
    email: str
    operator: bool  # sees the operator's section and the admin
    tenants: tuple[TenantLink, ...]  # that the person may open, by name
    more_tenants: bool = False  # there are more than these
    tenant: TenantLink | None
    invoices: bool = False  # the person may see the tenant's invoices
    manages: bool = False  # the person may make keys and, later, manage people
    wallets: bool = False  # the tenant has, or had, some: wherever it is looked at from
    area: Area
