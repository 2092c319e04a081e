"""What the pages of wallets show."""

from __future__ import annotations

from dataclasses import dataclass

from portal.web.badges import Badge
from portal.web.shapes.frame import Fact
from portal.web.shapes.invoices import BankTransfer
from portal.web.shapes.overview import Tile


@dataclass(frozen=True, kw_only=True)
class WalletRow:
    number: int
    owner: str
    of: str  # "Project", "User", "Tenant"
    balance: str
    free: str  # what may still be held or spent
    debt: bool


@dataclass(frozen=True, kw_only=True)
class WalletsPage:
    rows: tuple[WalletRow, ...]
    total: str
    more: str


@dataclass(frozen=True, kw_only=True)
class BookedRow:
    at: str
    memo: str
    day: str  # of service; "" for none
    amount: str  # signed
    credit: bool
    balance: str


@dataclass(frozen=True, kw_only=True)
class GrantRow:
    name: str
    given: str
    amount: str
    left: str
    expires: str
    badge: Badge


@dataclass(frozen=True, kw_only=True)
class TopUpRow:
    at: str
    by: str  # who asked for it
    method: str  # "Visa ending in 4242"
    amount: str
    badge: Badge
    message: str  # why it was refused


@dataclass(frozen=True, kw_only=True)
class AutomaticPanel:
    """How a wallet is topped up by itself; amounts as they are typed."""

    active: bool
    told: str  # in a sentence
    below: str
    amount: str
    most: str
    trouble: str  # why it does not go on; "" where it does


@dataclass(frozen=True, kw_only=True)
class TopUpPanel:
    """How credit is bought for the wallet; None of it for a wallet in tokens."""

    currency: str
    key: str  # under which the form buys once
    amount: str  # what was typed and refused
    card: str  # that is charged, "" for none
    by_card: bool  # cards are taken here
    may_pay: bool
    sandbox: bool
    rows: tuple[TopUpRow, ...]
    automatic: AutomaticPanel
    transfer: BankTransfer | None


@dataclass(frozen=True, kw_only=True)
class WalletPage:
    number: int  # key in the wallet's address
    owner: str
    of: str
    zone: str
    tiles: tuple[Tile, ...]
    grants: tuple[GrantRow, ...]
    rows: tuple[BookedRow, ...]
    older: str
    first: bool  # the newest booking is on this page
    months: tuple[Fact, ...]  # statements by month: its name, its query
    top_up: TopUpPanel | None


@dataclass(frozen=True, kw_only=True)
class StatementPage:
    """What was booked in a month: opening balance, what moved it, closing balance."""

    owner: str
    of: str
    number: int  # key of the wallet
    zone: str
    month: str  # "March 2026"
    sums: tuple[Fact, ...]  # from the opening to the closing balance
    rows: tuple[BookedRow, ...]
    more: str  # "1,200 more are in the CSV", "" where all are shown
    csv: str  # query of the CSV
