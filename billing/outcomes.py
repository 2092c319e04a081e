"""What became of a tenant's close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from billing.comparing import Change
from billing.models import Invoice
from billing.rules.money import Money


class Outcome(StrEnum):
    """What became of one tenant's close."""

    ISSUED = "issued"
    CORRECTED = "corrected"
    ALREADY = "already issued"
    NOTHING = "nothing to bill"
    CARRIED = "carried forward"
    PARKED = "waiting for approval"
    BLOCKED = "blocked"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Beside:
    """A document that a close issued beside the period's invoice: an invoice of corrections or a credit note."""

    kind: str
    number: str
    total: Money  # of a credit note below zero
    original: str = ""  # the number of the invoice that it takes back from


@dataclass(frozen=True, slots=True)
class Block:
    """One thing that keeps a tenant from closing: `code` for programs, `sentence` says what and what to do."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Closed:
    """One tenant's close. `reason` says in sentences what blocks it and what to do; `note` what to look at."""

    tenant: str
    outcome: Outcome
    number: str = ""
    total: Money | None = None
    reason: str = ""
    note: str = ""
    beside: tuple[Beside, ...] = ()
    blocks: tuple[Block, ...] = ()
    change: Change | None = None  # from the period before; told by a rehearsal


def blocked(slug: str, blocks: Sequence[Block]) -> Closed:
    """With all that blocks it."""
    told = " ".join(block.sentence for block in blocks)
    return Closed(slug, Outcome.BLOCKED, reason=told, blocks=tuple(blocks))


def closed(slug: str, invoice: Invoice, outcome: Outcome) -> Closed:
    """With the invoice's number and total."""
    return Closed(slug, outcome, invoice.number or "", Money.from_minor(invoice.total, invoice.currency))


def both_of_month(first: Closed, name: str, second: Closed | None) -> Closed:
    """Of two periods that begin in one month; `name` is the second's, which is None where it is not closed yet."""
    if second is None:
        told = f"{name} begins in the same month and is open: close the month again when it has ended."
        return replace(first, note=f"{first.note} {told}".strip())
    if second.outcome in {Outcome.BLOCKED, Outcome.FAILED, Outcome.PARKED}:
        told = f"{name} begins in the same month and is open: {second.reason}"
        return replace(first, note=f"{first.note} {told}".strip())
    if first.total is None or not first.number:
        return second
    document = Beside("invoice", first.number, first.total)
    note = f"Two periods begin in this month; {name} is the second."
    return replace(
        second,
        note=" ".join(filter(None, (first.note, second.note, note))),
        beside=(document, *first.beside, *second.beside),
    )


def beside(invoice: Invoice) -> Beside:
    """Of a document that was issued beside the invoice of the period."""
    original = invoice.original.number if invoice.original else None
    total = Money.from_minor(invoice.total, invoice.currency)
    return Beside(invoice.kind, invoice.number or "", total, original or "")
