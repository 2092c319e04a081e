"""What is paid of an invoice, and recording that it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from django.db import transaction
from django.db.models import Sum

from billing.models import Invoice, InvoiceState, Payment
from billing.rules.money import Money


class Settlement(StrEnum):
    """How an invoice stands with its payment; derived, never stored."""

    DRAFT = "draft"
    DUE = "due"
    PAST_DUE = "past_due"
    PAID = "paid"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Balance:
    """paid + due = total; `due` is negative where more was paid than owed."""

    paid: Money
    due: Money
    settlement: Settlement


class PaymentError(Exception):
    """A payment cannot be recorded so; the message says why and what to do."""


def balance(*, invoice: Invoice, on: date, paid: int | None = None) -> Balance:
    """How the invoice stands on a day. `paid` (minor units) saves the query where it is known."""
    if paid is None:
        paid = invoice.payments.aggregate(sum=Sum("amount"))["sum"] or 0
    received, total = (
        Money.from_minor(int(paid), invoice.currency),
        Money.from_minor(invoice.total, invoice.currency),
    )
    return Balance(received, total - received, _settlement(invoice, int(paid), on))


def _settlement(invoice: Invoice, paid: int, on: date) -> Settlement:
    if invoice.state == InvoiceState.VOID:
        return Settlement.VOID
    if invoice.state != InvoiceState.ISSUED:
        return Settlement.DRAFT
    if paid >= invoice.total:
        return Settlement.PAID
    return Settlement.PAST_DUE if invoice.due_on and on > invoice.due_on else Settlement.DUE


@transaction.atomic
def record_payment(
    *, invoice: Invoice, amount: Money, received_on: date, reference: str, recorded_by: str
) -> Payment:
    """Record money that arrived by bank transfer; the same transfer again, the same payment.

    A negative amount takes back one that was recorded by mistake. Raises PaymentError for an invoice
    that is not issued, another currency, nothing at all, or taking back more than was paid.
    """
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    if invoice.state != InvoiceState.ISSUED:
        raise PaymentError(f"{invoice} is {invoice.state}; only an issued invoice can be paid.")
    if amount.currency != invoice.currency:
        raise PaymentError(f"{invoice} is in {invoice.currency}, not {amount.currency}.")
    if not amount.amount:
        raise PaymentError("A payment of nothing cannot be recorded.")
    if not reference.strip():
        raise PaymentError("A payment needs its reference, as it stands on the bank statement.")
    known = Payment.objects.filter(
        invoice=invoice, reference=reference, received_on=received_on, amount=amount.minor
    ).first()
    if known is not None:
        return known
    paid = int(invoice.payments.aggregate(sum=Sum("amount"))["sum"] or 0)
    if paid + amount.minor < 0:
        raise PaymentError(
            f"Only {Money.from_minor(paid, invoice.currency).text} was paid; no more can be taken back."
        )
    return Payment.objects.create(
        invoice=invoice,
        tenant_id=invoice.tenant_id,
        amount=amount.minor,
        received_on=received_on,
        reference=reference,
        recorded_by=recorded_by,
    )
