"""Plans, what holds when, and a version that is being written."""

from __future__ import annotations

from dataclasses import dataclass

from portal.web.badges import Badge
from portal.web.shapes.frame import Fact, Plot


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    name: str
    currency: str
    settles: str  # "wallets", which it is paid by
    versions: str  # "3 versions"
    since: str  # of the version that holds now, "" where none does yet
    tenants: str  # that are on it now
    badge: Badge


@dataclass(frozen=True, kw_only=True)
class PlansPage:
    rows: tuple[PlanRow, ...]


@dataclass(frozen=True, kw_only=True)
class CurveRow:
    units: str  # "100", "just above 100"
    amount: str
    average: str  # per unit, "" of nothing


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What a price comes to by quantity; `cliffs` are sentences where a little more costs less."""

    title: str
    says: str  # "graduated: up to 100 at $3.00, …"
    unit: str  # "GPU-hours"
    plot: Plot
    rows: tuple[CurveRow, ...]
    cliffs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PriceLine:
    key: int
    description: str
    says: str  # how it depends on the quantity, or the price of a unit
    holds: str  # "from 1 Jan 2026", "1 Jan – 1 Mar 2026"
    tenant: str  # for whom alone, "" for all
    used: bool
    ends: str  # the first day on which it may end as a form writes it, "" where it has ended


@dataclass(frozen=True, kw_only=True)
class VersionCard:
    since: str
    until: str  # "" for the last one
    key: str  # its first day, in addresses
    charges: str
    badge: Badge
    used: bool
    prices: tuple[PriceLine, ...]
    terms: tuple[Fact, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True, kw_only=True)
class PlanPage:
    name: str
    badge: Badge
    subtitle: str
    versions: tuple[VersionCard, ...]
    tenants: tuple[Fact, ...]  # slug and since when
    more_tenants: int
    deletable: bool


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What one tenant's month comes to under the draft."""

    size: str  # "Small", "Usual", "Large"
    tenant: str
    now: str
    tried: str
    lines: tuple[tuple[str, str, str], ...]  # line, now, tried
    unpriced: str


@dataclass(frozen=True, kw_only=True)
class EditorPage:
    text: str
    plan: str  # "" for a new one
    errors: tuple[str, ...] = ()
    warning: str = ""
    checked: bool = False  # the text could be published as it stands
    begins: str = ""
    curves: tuple[Curve, ...] = ()
    bills: tuple[Bill, ...] = ()
    bills_of: str = ""  # "March 2026"
    no_bills: str = ""  # why there are none
    since: str = ""  # of the trial, as months
    until: str = ""
    tenants: str = ""
    trial: tuple[Bill, ...] = ()
    trial_total: tuple[str, str] = ("", "")
    trial_of: str = ""
