"""Money that tenants are owed: more was paid of an invoice than is owed for it, mostly since it was credited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Final

from django.db import transaction
from django.db.models import BigIntegerField, F, Q, Sum, Value
from django.db.models.functions import Cast, Greatest

from billing.models import (
    EFFECTIVE_REFUNDS,
    REFUNDS_UNDER_WAY,
    AttemptState,
    DisputeState,
    Invoice,
    Notice,
    NoticeKind,
    Payment,
    PaymentAttempt,
    PaymentRefund,
)
from billing.payments import refunds
from billing.payments.gateway_access import CollectionError
from billing.receivables import settlement
from billing.rules import gateway_amounts
from billing.rules.money import Money

BY_CARD: Final = Q(state=AttemptState.SUCCEEDED) & ~Q(
    disputes__state__in=[DisputeState.OPEN, DisputeState.LOST]
)


@dataclass(frozen=True, slots=True)
class RefundDue:
    """What one invoice's tenant is owed, less what is on its way back."""

    invoice: Invoice
    amount: Money
    to_card: Money  # of it, what can be refunded to where it came from
    failed: bool  # a refund below a credit note was tried, and gave nothing back

    @property
    def sentence(self) -> str:
        owed = (
            f"{self.amount.text} {self.amount.currency} are owed to {self.invoice.tenant}: more was paid of "
        )
        owed += f"{self.invoice.number} than is owed for it."
        if not self.to_card.amount:
            return f"{owed} Transfer the money and record the transfer."
        rest = self.amount - self.to_card
        text = f"{owed} {self.to_card.text} {self.to_card.currency} can be refunded to the card."
        return f"{text} Transfer the other {rest.text}." if rest.amount else text


def list_due(*, limit: int, invoice: Invoice | None = None) -> list[RefundDue]:
    """The oldest first, without those whose money is on its way back. Two queries, however many."""
    rows = Invoice.objects.overpaid() if invoice is None else Invoice.objects.overpaid().filter(pk=invoice.pk)
    invoices = list(rows.select_related("tenant").order_by("pk")[:limit])
    parts = _parts(invoices)
    due = []
    for row in invoices:
        owed = -row.balance.left - parts["under-way", row.pk]
        card = max(min(owed, parts["cards", row.pk], parts["notes", row.pk]), 0)
        _, over = gateway_amounts.to_stripe(card, row.currency)
        if owed > 0:
            amount, to_card = (Money.from_minor(minor, row.currency) for minor in (owed, card - over))
            due.append(RefundDue(row, amount, to_card, bool(parts["failed", row.pk])))
    return due


@transaction.atomic
def refund_to_card(*, invoice: Invoice, who: str, moment: datetime) -> Money:
    """Commit the refunds of what is owed, below the invoice's credit notes; how much. The next round sends them.

    Asked again, only what is still owed. Raises CollectionError where nothing can be refunded to a card.
    """
    total = 0
    for note in invoice.credit_notes.issued().order_by("pk"):
        try:
            total += sum(
                row.amount for row in refunds.prepare_refunds(credit_note=note, who=who, moment=moment)
            )
        except CollectionError:
            continue
    if not total:
        raise CollectionError("nothing-to-refund", invoice=invoice)
    return Money.from_minor(total, invoice.currency)


@transaction.atomic
def record_transfer(*, invoice: Invoice, reference: str, who: str, on: date) -> Payment:
    """Record that all that is owed was transferred to the tenant, which is told so.

    Raises CollectionError where nothing is.
    """
    # No refund to the card begins between looking and booking.
    Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    due = list_due(limit=1, invoice=invoice)
    if not due:
        raise CollectionError("nothing-owed", invoice=invoice)
    payment = settlement.record_payment(
        invoice=invoice, amount=-due[0].amount, received_on=on, reference=reference, recorded_by=who
    )
    _announce_transfer(payment, on=on)
    return payment


def _announce_transfer(payment: Payment, *, on: date) -> None:
    """That money went back by a transfer which an operator records; for its transaction. Again, nothing more."""
    recorded_at = datetime.combine(on, time.min, UTC)
    row = Notice(
        tenant_id=payment.tenant_id,
        invoice=payment.invoice,
        kind=NoticeKind.REFUND,
        key=f"refund:{payment.pk}",
        details={"payment": payment.pk},
        created_at=recorded_at,
        not_before=recorded_at,
    )
    Notice.objects.bulk_create([row], ignore_conflicts=True)


def _parts(invoices: Sequence[Invoice]) -> Mapping[tuple[str, int], int]:
    """Minor units by invoice: on their way back, left on cards and on credit notes, and of refunds that failed. One
    query.
    """
    parts: dict[tuple[str, int], int] = defaultdict(int)
    if not invoices:
        return parts
    refunded = Sum("refunds__amount", filter=Q(refunds__state__in=EFFECTIVE_REFUNDS), default=0)
    under_way = PaymentRefund.objects.filter(attempt__invoice__in=invoices, state__in=REFUNDS_UNDER_WAY)
    cards = PaymentAttempt.objects.filter(BY_CARD, invoice__in=invoices)
    notes = Invoice.objects.issued().filter(original__in=invoices)
    whole = BigIntegerField()
    rows = under_way.values_list(Value("under-way"), "attempt__invoice", Cast("amount", whole)).union(
        cards.annotate(refunded=refunded).values_list(
            Value("cards"), "invoice", Cast(F("amount") - F("refunded"), whole)
        ),
        notes.annotate(refunded=refunded).values_list(
            Value("notes"), "original", Cast(Greatest(F("prepaid") - F("total") - F("refunded"), 0), whole)
        ),
        refunds.list_not_refunded()
        .filter(attempt__invoice__in=invoices)
        .values_list(Value("failed"), "attempt__invoice", Cast("amount", whole)),
        all=True,
    )
    for part, invoice, amount in rows:
        parts[part, invoice] += amount
    return parts
