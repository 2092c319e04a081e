"""What is paid of an invoice, and recording that it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import F, Sum

from billing.models import UNDECIDED, DisputeState, DocumentKind, Invoice, InvoiceState, Payment
from billing.receivables import invoice_events
from billing.receivables.messages import SENTENCES
from billing.rules import gateway_amounts
from billing.rules.dunning_defaults import DEFAULTS
from billing.rules.errors import RuleError
from billing.rules.money import Money
from billing.rules.period import newest_day
from portal.errors import CodedError


class Settlement(StrEnum):
    """How an invoice stands with its payment; derived, never stored."""

    DRAFT = "draft"
    DUE = "due"
    PAST_DUE = "past_due"
    PROCESSING = "processing"  # something is due, and a payment is under way: nobody is to pay again
    DISPUTED = "disputed"
    CHARGED_BACK = "charged_back"
    PAID = "paid"
    CREDITED = "credited"
    WRITTEN_OFF = "written_off"
    CREDIT_NOTE = "credit_note"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Balance:
    """from_wallet + paid + credited + written_off + due = total.

    `due` below zero: more was paid than owed, it is to be given back. `written_off` is what is not expected any
    more, as far as it did not come after all. `from_wallet` is what the tenant's wallet paid when the invoice was
    issued, less what credit notes gave back to it. A credit note is credited in full: what it gives back is due, or
    not due any more, on its invoice.
    """

    from_wallet: Money
    paid: Money
    credited: Money
    written_off: Money
    due: Money
    settlement: Settlement


class PaymentError(CodedError):
    """A payment cannot be recorded so; the message says why and what to do."""

    sentences = SENTENCES


def load_balance(*, invoice: Invoice, on: date) -> Balance:
    """How the invoice stands on a day. One query; of many, ask `compute_balance` of each of `with_balance`."""
    return compute_balance(invoice=Invoice.objects.select_related("balance").get(pk=invoice.pk), on=on)


def compute_balance(*, invoice: Invoice, on: date) -> Balance:
    """How an invoice that was read with its balance stands on a day. No query."""
    sums = invoice.balance
    credited, prepaid = sums.credited, invoice.prepaid - sums.to_wallet
    if invoice.kind == DocumentKind.CREDIT_NOTE:
        credited, prepaid = invoice.total, 0
    if invoice.state == InvoiceState.VOID:
        prepaid = 0
    written_off_minor = sums.written_off if invoice.state == InvoiceState.ISSUED else 0
    left = invoice.total - prepaid - sums.received - credited - written_off_minor
    from_wallet, received, credited_money, written_off, due = (
        Money.from_minor(minor, invoice.currency)
        for minor in (prepaid, sums.received, credited, written_off_minor, left)
    )
    settlement = _settlement(invoice, sums.received + prepaid, credited, on)
    return Balance(from_wallet, received, credited_money, written_off, due, settlement)


def _settlement(invoice: Invoice, paid: int, credited: int, on: date) -> Settlement:
    if invoice.state == InvoiceState.VOID:
        return Settlement.VOID
    if invoice.state != InvoiceState.ISSUED:
        return Settlement.DRAFT
    if invoice.kind == DocumentKind.CREDIT_NOTE:
        return Settlement.CREDIT_NOTE
    if invoice.balance.disputed in UNDECIDED:
        return Settlement.DISPUTED
    if paid + credited >= invoice.total:
        return Settlement.CREDITED if credited and not paid else Settlement.PAID
    written_off = invoice.balance.written_off
    if paid + credited + written_off >= invoice.total:
        residue = written_off < gateway_amounts.step(invoice.currency)  # too little to be charged
        return Settlement.PAID if residue else Settlement.WRITTEN_OFF
    return _unpaid(invoice, on)


def _unpaid(invoice: Invoice, on: date) -> Settlement:
    if invoice.balance.under_way:
        return Settlement.PROCESSING
    if invoice.balance.disputed == DisputeState.LOST:
        return Settlement.CHARGED_BACK
    late_from = DEFAULTS.past_due if invoice.balance.late_from is None else invoice.balance.late_from
    late = invoice.due_on is not None and (on - invoice.due_on).days >= late_from
    return Settlement.PAST_DUE if late else Settlement.DUE


@transaction.atomic
def record_payment(
    *, invoice: Invoice, amount: Money, received_on: date, reference: str, recorded_by: str
) -> Payment:
    """Record money that arrived by bank transfer; the same transfer again, the same payment.

    A negative amount takes back one that was recorded by mistake, or is money that went back to the tenant. Raises
    PaymentError for an invoice that is not issued, another currency, nothing at all, or taking back more than was
    paid and more than is to be given back.
    """
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    if invoice.state != InvoiceState.ISSUED:
        raise PaymentError("not-payable", invoice=invoice, state=invoice.state)
    if invoice.kind == DocumentKind.CREDIT_NOTE:
        raise PaymentError("payment-of-credit-note", invoice=invoice, original=invoice.original)
    if amount.currency != invoice.currency:
        raise PaymentError(
            "other-currency", invoice=invoice, currency=invoice.currency, other=amount.currency
        )
    if not amount.amount:
        raise PaymentError("payment-of-nothing")
    try:
        amount.check_bookable()
    except RuleError as error:
        raise PaymentError(error.code, **error.values) from error
    if not reference.strip():
        raise PaymentError("payment-without-reference")
    existing = find_payment(invoice=invoice, amount=amount, received_on=received_on, reference=reference)
    if existing is not None:
        return existing
    paid = int(invoice.payments.aggregate(sum=Sum("amount"))["sum"] or 0)
    if amount.minor < 0:
        _refuse_beyond(invoice, paid, -amount.minor)
    payment = Payment.objects.create(
        invoice=invoice,
        tenant_id=invoice.tenant_id,
        amount=amount.minor,
        received_on=received_on,
        reference=reference,
        recorded_by=recorded_by,
    )
    invoice_events.record_payment(invoice, amount.minor)
    return payment


def check_day(*, invoice: Invoice, received_on: date, at: datetime) -> None:
    """Raises PaymentError for a day that is still to come, and for one before the invoice's period began."""
    if received_on > newest_day(at):
        raise PaymentError("payment-to-come", day=received_on)
    first = invoice.period_start.astimezone(ZoneInfo(invoice.timezone)).date()
    if received_on < first:
        raise PaymentError("payment-before-period", invoice=invoice, first=first, day=received_on)


def find_payment(*, invoice: Invoice, amount: Money, received_on: date, reference: str) -> Payment | None:
    """The payment that this transfer is already."""
    rows = Payment.objects.filter(invoice=invoice, reference=reference, received_on=received_on)
    return rows.filter(amount=amount.minor).first()


def _refuse_beyond(invoice: Invoice, paid: int, back: int) -> None:
    """What a wallet paid and a credit note gave back is given back in money too, by schemes that pay back."""
    credited = invoice.credit_notes.issued().aggregate(sum=Sum(F("total") - F("prepaid")))["sum"]
    owed = paid + invoice.prepaid - invoice.total - int(credited or 0)
    if back <= max(paid, owed):
        return
    if owed > paid:
        raise PaymentError("beyond-owed", amount=Money.from_minor(owed, invoice.currency).text)
    most = Money.from_minor(max(paid, 0), invoice.currency)
    raise PaymentError("beyond-paid", amount=most.text)
