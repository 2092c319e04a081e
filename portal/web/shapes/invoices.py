"""Invoices, their lines, and the jobs behind a line."""

from __future__ import annotations

from dataclasses import dataclass

from portal.web.badges import Badge
from portal.web.shapes.frame import Fact
from portal.web.shapes.payment import PayOffer


@dataclass(frozen=True, kw_only=True)
class Party:
    name: str
    lines: tuple[str, ...]  # address, then tax id


@dataclass(frozen=True, kw_only=True)
class Line:
    position: int  # key in the line's address
    description: str  # "GPU time, H100"
    detail: str  # selectors or service period, "" if none
    quantity: str
    unit: str  # "GPU-hours"
    unit_price: str
    amount: str
    jobs: str  # "1,204 jobs"; "" where the line is an amount alone


@dataclass(frozen=True, kw_only=True)
class LineGroup:
    project: str
    subtotal: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class BankTransfer:
    """How to pay; fields that the seller has not set are ""."""

    amount: str
    by: str
    holder: str
    iban: str
    bic: str
    reference: str
    code: str  # a QR code that banking apps read, as a path of SVG
    code_side: int  # of it, in places


@dataclass(frozen=True, kw_only=True)
class Payment:
    date: str
    method: str
    reference: str
    amount: str


@dataclass(frozen=True, kw_only=True)
class NoticeRow:
    what: str  # "Reminder 2"
    when: str  # "3 Mar 2026"
    to: str  # addresses


@dataclass(frozen=True, kw_only=True)
class Related:
    """Another document that this one stands in relation to."""

    label: str  # "Credits invoice"
    number: str
    amount: str  # "" where it does not matter here


@dataclass(frozen=True, kw_only=True)
class InvoicePage:
    title: str  # "Credit note"
    number: str
    badge: Badge
    seller: Party
    buyer: Party
    facts: tuple[Fact, ...]  # invoice date, service period, due date, customer number, purchase order
    groups: tuple[LineGroup, ...]
    sums: tuple[Fact, ...]  # subtotal, each tax
    legal: tuple[str, ...] = ()  # why no tax is charged, a sentence each
    total: str
    from_wallet: str  # "" if nothing was
    drawn: tuple[Payment, ...]  # by grant, what the wallet paid when it was issued
    paid: str  # "" if nothing was
    credited: str  # "" if nothing was
    written_off: str = ""  # "" if nothing is
    due: str  # "" if nothing is
    processing: bool = False  # a payment of what is due is under way
    refund: str  # what is to be paid back, "" if nothing is
    payments: tuple[Payment, ...] = ()
    notices: tuple[NoticeRow, ...] = ()  # the newest first
    related: tuple[Related, ...] = ()
    transfer: BankTransfer | None = None  # while something is due
    note: str = ""  # why it is void, what it corrects
    offer: PayOffer | None = None  # while something is due, and cards are taken
    evidence: str = (
        ""  # the SHA-256 of what stands behind it; "" until that is fixed, a moment after it is issued
    )
    einvoice: bool = False  # it has one


@dataclass(frozen=True, kw_only=True)
class NotReadyPage:
    """In the place of a file that there is not."""

    number: str
    why: str
    later: bool  # it will be there in a moment


@dataclass(frozen=True, kw_only=True)
class LineJob:
    record: int
    left: bool  # it has no page of its own here any more
    job_id: str
    user: str
    since: str  # "1 Nov 2026, 00:00:00"
    until: str
    held: str  # "1,411,200": seconds × units, before the share of a unit
    counted_in: str  # "GPU-seconds × 1/7"
    share: str  # of the line's seconds: "4.4 %"
    amount: str  # exact, before rounding


@dataclass(frozen=True, kw_only=True)
class LinePage:
    """The jobs behind a line of an invoice, the largest first."""

    number: str
    line: Line
    project: str
    seconds: str  # of all jobs of the line: "32,400,000 GPU-seconds"; "" where they are not told
    apart: str  # why the jobs are not told, "" where they are
    formula: str  # "32,400,000 GPU-seconds ÷ 3,600 × $2.85 = $25,650.00, rounded once"
    jobs: tuple[LineJob, ...]
    more: str
