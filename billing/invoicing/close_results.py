"""What became of a tenant's close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from billing.invoicing.period_comparison import Change
from billing.models import Invoice
from billing.rules.money import Money


class Outcome(StrEnum):
    """What became of one tenant's close."""

    ISSUED = "issued"
    CORRECTED = "corrected"
    ALREADY = "already issued"
    NOTHING = "nothing to bill"
    CARRIED = "carried forward"
    PENDING_APPROVAL = "waiting for approval"
    BLOCKED = "blocked"
    FAILED = "failed"


STUCK = frozenset({Outcome.PENDING_APPROVAL, Outcome.BLOCKED, Outcome.FAILED})
"""Something keeps the period open, and people have to look at it."""


@dataclass(frozen=True, slots=True)
class RelatedDocument:
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
class TenantClose:
    """One tenant's close. `reason` says in sentences what blocks it and what to do; `note` what to look at."""

    tenant: str
    outcome: Outcome
    number: str = ""
    total: Money | None = None
    reason: str = ""
    note: str = ""
    related_documents: tuple[RelatedDocument, ...] = ()
    blocks: tuple[Block, ...] = ()
    change: Change | None = None  # from the period before; told by a preview


def make_blocked(slug: str, blocks: Sequence[Block]) -> TenantClose:
    """With all that blocks it."""
    reason = " ".join(block.sentence for block in blocks)
    return TenantClose(slug, Outcome.BLOCKED, reason=reason, blocks=tuple(blocks))


def make_invoiced(slug: str, invoice: Invoice, outcome: Outcome) -> TenantClose:
    """With the invoice's number and total."""
    return TenantClose(slug, outcome, invoice.number or "", Money.from_minor(invoice.total, invoice.currency))


def combine_periods(outcomes: Sequence[TenantClose], names: Sequence[str]) -> TenantClose:
    """Of the periods that begin in one month: what keeps one of them open, or else the last that has an invoice.

    What else is issued stands beside it. `outcomes` are those of the first period and of the others, as far as these
    have ended; `names` those of the others.
    """
    if not names:
        return outcomes[0]
    is_stuck = outcomes[-1].outcome in STUCK
    main = (
        outcomes[-1]
        if is_stuck
        else next((outcome for outcome in reversed(outcomes) if outcome.number), outcomes[-1])
    )
    documents: list[RelatedDocument] = []
    for outcome in outcomes:
        if outcome is not main and outcome.total and outcome.number:
            documents.append(RelatedDocument("invoice", outcome.number, outcome.total))
        documents += outcome.related_documents
    notes = [
        note for outcome in outcomes for note in (outcome.note, "" if outcome is main else outcome.reason)
    ]
    done = names[: len(outcomes) - 1 - is_stuck]
    if done:
        follow = f"{done[0]} is the second" if len(done) == 1 else f"{', '.join(done)} follow"
        notes.append(f"{_COUNTS.get(len(done), 'Several')} periods begin in this month; {follow}.")
    why = "it is this one that waits." if is_stuck else "close the month again when it has ended."
    for name in names[len(done) :]:
        notes.append(f"{name} begins in the same month and is open: {why}")
        why = "it waits for the period before it." if is_stuck else why
    return replace(main, note=" ".join(filter(None, notes)), related_documents=tuple(documents))


_COUNTS = {1: "Two", 2: "Three"}


def make_related_document(invoice: Invoice) -> RelatedDocument:
    """Of a document that was issued beside the invoice of the period."""
    original = invoice.original.number if invoice.original else None
    total = Money.from_minor(invoice.total, invoice.currency)
    return RelatedDocument(invoice.kind, invoice.number or "", total, original or "")
