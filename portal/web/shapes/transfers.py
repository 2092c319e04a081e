"""What the operator's page of bank transfers shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portal.web.badges import Badge
    from portal.web.shapes.closing import CloseTile


@dataclass(frozen=True, kw_only=True)
class HintRow:
    """An open invoice that a transfer may pay, or a transfer that a debit may take back."""

    value: str  # what the button sends
    label: str  # "INV-2026-0001 of Vision Lab"
    amount: str
    why: str  # "same amount, a similar name"


@dataclass(frozen=True, kw_only=True)
class PartRow:
    label: str  # "INV-2026-0001", "Credit of Vision Lab"
    slug: str
    number: str  # of the invoice; "" for none
    amount: str
    back: bool  # it was taken back by this


@dataclass(frozen=True, kw_only=True)
class TransferRow:
    pk: int
    amount: str
    out: bool  # it left the account
    day: str
    payer: str
    account: str  # of the payer
    text: str
    name: str  # what the bank calls it
    badge: Badge
    why: str
    decided: str  # "op@cluster.example, 8 Apr 2026, 10:00 UTC"
    hints: tuple[HintRow, ...]
    parts: tuple[PartRow, ...]
    waits: bool
    may_return: bool  # what was decided can be taken back


@dataclass(frozen=True, kw_only=True)
class RefusedRow:
    pk: int
    place: str
    statement: str
    reason: str
    raw: str


@dataclass(frozen=True, kw_only=True)
class CreditRow:
    slug: str
    tenant: str
    currency: str
    amount: str
    plain: str  # as it is typed


@dataclass(frozen=True, kw_only=True)
class StatementRow:
    name: str
    account: str
    file: str
    opening: str
    closing: str
    entries: str  # "12, 3 of them new"
    taken: str  # when, by whom


@dataclass(frozen=True, kw_only=True)
class TransfersPage:
    tiles: tuple[CloseTile, ...]
    title: str  # of the list
    empty: str  # what is said of none
    rows: tuple[TransferRow, ...]
    older: str
    show: str
    refused: tuple[RefusedRow, ...]
    credits: tuple[CreditRow, ...]
    statements: tuple[StatementRow, ...]
    account: str  # that invoices ask to pay to; "" where none is set
    options: Mapping[str, str]  # by field what was said of the file that was refused, or previewed


@dataclass(frozen=True, kw_only=True)
class StepRow:
    when: str
    badge: Badge
    by: str
    why: str


@dataclass(frozen=True, kw_only=True)
class TransferPage:
    """One transfer, from the statement to what it is booked on, with all that was decided of it."""

    title: str  # "€20.00 on 8 Apr 2026"
    payer: str
    badge: Badge
    facts: tuple[tuple[str, str], ...]  # what the bank said
    raw: str
    steps: tuple[StepRow, ...]
    parts: tuple[PartRow, ...]
    undoes: str  # a sentence; "" where it takes nothing back, and nothing took it back
    other: int | None  # the transfer that it speaks of
