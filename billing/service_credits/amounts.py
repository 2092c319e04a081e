"""What a failed run was billed, and so what is credited: by the lines of its invoices, in proportion of its seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction

from django.db.models import Sum

from billing.models import (
    CreditedPart,
    InvoiceLine,
    InvoiceState,
    LineKind,
    RatedUsage,
    ServiceCredit,
    Verdict,
)
from billing.queries import jobs
from billing.queries.costs import per_currency
from billing.queries.jobs import Piece
from billing.rules.money import Money
from portal.core.tenants.models import Tenant

CHARGED = (LineKind.USAGE, LineKind.FEE, LineKind.COMMITMENT)

Lines = Mapping[tuple[str, int], InvoiceLine]


class UnclearError(Exception):
    """A person has to decide; the message says why."""


class NotInvoicedError(Exception):
    """A part of the run stands on no invoice yet."""


def credited_amount(credit: ServiceCredit) -> Money | None:
    """What the rule credits, rounded; None where nothing was charged. Raises NotInvoicedError and UnclearError.

    A line's tiers and included hours are in it, as they are in the line, and so are discounts of its period. Of a
    line that was credited in full by hand nothing is credited again.
    """
    _, pieces = jobs.job(credit.tenant, credit.record_id)
    charged = [piece for piece in pieces if piece.verdict != Verdict.WAIVED]
    rated = RatedUsage.objects.filter(tenant_id=credit.tenant_id, record_id=credit.record_id)
    if payers := Tenant.objects.filter(pk__in=rated.values("payer_id")).order_by("slug"):
        names = ", ".join(payer.slug for payer in payers)
        raise UnclearError(f"Another tenant pays for it ({names}): add a line there by hand.")
    if any(not piece.invoice for piece in charged):
        raise NotInvoicedError
    lines = _lines(charged)
    by_hand = _credited_by_hand(lines)
    sums = per_currency(
        _billed(piece, lines, by_hand) * _share(piece, credit) for piece in charged if piece.tag is not None
    )
    if len(sums) > 1:
        raise UnclearError("It was billed in several currencies: add lines by hand.")
    return (sums[0] * Fraction(credit.percent, 100)).rounded() if sums else None


def _lines(pieces: Sequence[Piece]) -> Lines:
    """One query."""
    places = {(piece.invoice, piece.line) for piece in pieces if piece.line is not None}
    rows = InvoiceLine.objects.filter(
        invoice__state=InvoiceState.ISSUED, invoice__number__in={number for number, _ in places}
    )
    return {(line.invoice.number or "", line.position): line for line in rows.select_related("invoice")}


def _credited_by_hand(lines: Lines) -> Mapping[int, int]:
    """By line what stands of its credits by hand, in minor units, below zero. One query."""
    rows = InvoiceLine.objects.filter(
        kind=LineKind.CREDIT, original__in=lines.values(), invoice__state=InvoiceState.ISSUED
    )
    return dict(rows.values_list("original").annotate(Sum("amount")).order_by())


def _billed(piece: Piece, lines: Lines, by_hand: Mapping[int, int]) -> Money:
    """Its part of the line that it stands on; of what has none, such as a corrected price, what it costs."""
    cost = piece.cost
    if cost is None:
        raise UnclearError("A part of it was billed without a price: add a line by hand.")
    line = lines.get((piece.invoice, piece.line)) if piece.line is not None else None
    if line is None or not line.seconds_num:
        return cost
    credited = by_hand.get(line.pk, 0)
    if credited not in {0, -line.amount}:
        raise UnclearError(f"{line.invoice} is credited by hand in part: add a line for what is left of it.")
    seconds = Fraction(line.seconds_num) / line.seconds_den
    return (
        Money.from_minor(line.amount + credited, cost.currency)
        * (piece.resource_seconds / seconds)
        * _after_discounts(line, lines)
    )


def _after_discounts(line: InvoiceLine, lines: Lines) -> Fraction:
    """The part of a line that discounts leave of it: they are off all that its invoice charges for its period."""
    period = [
        other
        for other in lines.values()
        if (other.invoice_id, other.service_period_id) == (line.invoice_id, line.service_period_id)
    ]
    charged = sum(other.amount for other in period if other.kind in CHARGED)
    taken = sum(other.amount for other in period if other.kind == LineKind.DISCOUNT)
    return Fraction(charged + taken, charged) if charged > 0 else Fraction(1)


def _share(piece: Piece, credit: ServiceCredit) -> Fraction:
    """How much of its time is credited, from 0 to 1."""
    if credit.part == CreditedPart.RUN:
        return Fraction(1)
    length = _seconds(piece.service_from, piece.service_to)
    rest = _seconds(max(piece.service_from, credit.failed_at), min(piece.service_to, credit.ended_at))
    return Fraction(max(rest, 0), length) if length else Fraction(0)


def _seconds(since: datetime, until: datetime) -> int:
    return int(until.timestamp()) - int(since.timestamp())
