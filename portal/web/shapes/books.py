"""What the pages of reconciliation show: differences, runs, payouts and what each is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portal.web.badges import Badge
    from portal.web.form_input import Option
    from portal.web.shapes.frame import Tile


@dataclass(frozen=True, kw_only=True)
class DifferenceRow:
    pk: int
    title: str  # "Another amount"
    object_id: str
    tenant: str  # "" where nobody's is known
    slug: str
    invoice: str  # its number
    ours: str
    theirs: str
    means: str  # in words
    remedy: str  # what to do
    first: str
    last: str
    resolved: str  # when, "" while it is open
    note: str
    noted: str  # "op@lab.example, 20 Nov 2026, 08:00"


@dataclass(frozen=True, kw_only=True)
class PayoutRow:
    name: str
    made: str
    arrives: str
    badge: Badge
    lines: str
    amount: str


@dataclass(frozen=True, kw_only=True)
class RunRow:
    began: str
    window: str
    by: str
    read: str
    badge: Badge
    error: str


@dataclass(frozen=True, kw_only=True)
class BooksPage:
    ready: bool  # a payment service is set up
    sandbox: bool
    tiles: tuple[Tile, ...]
    state: tuple[Option, ...]
    resolved: bool  # it lists what is resolved
    rows: tuple[DifferenceRow, ...]
    older: str
    payouts: tuple[PayoutRow, ...]
    older_payouts: str
    runs: tuple[RunRow, ...]


@dataclass(frozen=True, kw_only=True)
class MovementRow:
    name: str
    at: str
    what: str  # "Payment", "Refund", "Dispute"
    source: str
    tenant: str
    slug: str
    invoice: str
    paid: str  # what was paid where that is in another currency, else ""
    amount: str
    fee: str
    net: str


@dataclass(frozen=True, kw_only=True)
class PayoutPage:
    name: str
    badge: Badge
    amount: str
    made: str
    arrives: str
    note: str  # what is to be known of it, "" where nothing is
    rows: tuple[MovementRow, ...]
    others: bool  # something was paid in another currency than it settled in
    more: str  # "800 more: the CSV has all"
    total_amount: str
    total_fee: str
    total_net: str
