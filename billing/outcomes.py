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


def all_of_month(outcomes: Sequence[Closed], names: Sequence[str]) -> Closed:
    """Of periods that begin in one month: the last that has an invoice, with what else is issued beside it.

    `outcomes` are those of the first period and of the others, as far as these have ended; `names` those of the others.
    """
    stuck = {Outcome.BLOCKED, Outcome.FAILED, Outcome.PARKED}
    reached = [each for place, each in enumerate(outcomes) if not place or each.outcome not in stuck]
    main = next((each for each in reversed(reached) if each.number), reached[-1])
    documents: list[Beside] = []
    for each in reached:
        if each is not main and each.total and each.number:
            documents.append(Beside("invoice", each.number, each.total))
        documents += each.beside
    notes = [note for each in reached for note in (each.note, "" if each is main else each.reason)]
    closed_later, still_open = names[: len(reached) - 1], names[len(reached) - 1 :]
    if closed_later:
        follow = (
            f"{closed_later[0]} is the second"
            if len(closed_later) == 1
            else f"{', '.join(closed_later)} follow"
        )
        notes.append(f"{_COUNTS.get(len(reached), 'Several')} periods begin in this month; {follow}.")
    is_stuck = len(outcomes) > len(reached)
    why = outcomes[-1].reason if is_stuck else "close the month again when it has ended."
    for name in still_open:
        notes.append(f"{name} begins in the same month and is open: {why}")
        why = "it waits for the period before it." if is_stuck else why
    return replace(main, note=" ".join(filter(None, notes)), beside=tuple(documents))


_COUNTS = {2: "Two", 3: "Three"}


def beside(invoice: Invoice) -> Beside:
    """Of a document that was issued beside the invoice of the period."""
    original = invoice.original.number if invoice.original else None
    total = Money.from_minor(invoice.total, invoice.currency)
    return Beside(invoice.kind, invoice.number or "", total, original or "")
