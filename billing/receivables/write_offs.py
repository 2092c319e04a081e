"""Giving up what an invoice has due: the operator's act, told apart in every sum, undone by what comes yet."""

from __future__ import annotations

from datetime import date, datetime

from django.db import transaction

from billing.models import UNDER_WAY, DocumentKind, Invoice, InvoiceState, PaymentAttempt, WriteOff
from billing.receivables import settlement
from billing.receivables.messages import SENTENCES
from portal.errors import CodedError


class WriteOffError(CodedError):
    """It cannot be written off so; the message says why and what to do."""

    sentences = SENTENCES


def describe_effect(invoice: Invoice, *, on: date) -> str:
    """What writing off would do on that day, for whoever confirms it."""
    due = settlement.load_balance(invoice=invoice, on=on).due
    return f"{due.text} {due.currency} of {invoice} of {invoice.tenant} are given up."


def describe_reversal(invoice: Invoice) -> str:
    return f"{invoice} of {invoice.tenant} is due again, as far as it is not paid."


@transaction.atomic
def write_off_invoice(*, invoice: Invoice, reason: str, by: str, on: date) -> WriteOff:
    """Write off all that the invoice has due. Asked again, the same write-off.

    Money that comes later, and credit notes, count before it: what is written off shrinks by them. Raises
    WriteOffError without a reason, where nothing is due, and while a payment is under way.
    """
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    if not reason.strip():
        raise WriteOffError("write-off-without-reason")
    if invoice.state != InvoiceState.ISSUED or invoice.kind == DocumentKind.CREDIT_NOTE:
        raise WriteOffError("not-issued", invoice=invoice)
    existing = WriteOff.objects.filter(invoice=invoice, undone_at=None).first()
    due = settlement.load_balance(invoice=invoice, on=on).due.minor
    if existing is not None:
        if due <= 0:
            return existing
        raise WriteOffError("partly-written-off", invoice=invoice)
    if due <= 0:
        raise WriteOffError("nothing-due", invoice=invoice)
    if PaymentAttempt.objects.filter(UNDER_WAY, invoice=invoice).exists():
        raise WriteOffError("payment-under-way", invoice=invoice)
    return WriteOff.objects.create(
        invoice=invoice, tenant_id=invoice.tenant_id, amount=due, on=on, reason=reason.strip(), by=by
    )


@transaction.atomic
def reverse_write_off(*, invoice: Invoice, reason: str, by: str, moment: datetime) -> WriteOff:
    """Have the invoice due again, as far as it was not paid meanwhile. A second call is refused, as is one without
    a reason: WriteOffError."""
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    if not reason.strip():
        raise WriteOffError("reversal-without-reason")
    row = WriteOff.objects.filter(invoice=invoice, undone_at=None).first()
    if row is None:
        raise WriteOffError("nothing-written-off", invoice=invoice)
    row.undone_at, row.undone_by, row.undo_reason = moment, by, reason.strip()
    row.save()
    return row
