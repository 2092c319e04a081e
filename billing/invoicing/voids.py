"""Taking back an invoice that nobody paid: it keeps its number, and its usage is pending again."""

from __future__ import annotations

from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Q, Sum

from billing.invoicing import numbering
from billing.invoicing.messages import SENTENCES
from billing.models import (
    CLOSED_PERIOD,
    OPEN_CHECKOUTS,
    UNDER_WAY,
    BillingPeriod,
    CheckoutSession,
    DocumentKind,
    Invoice,
    InvoiceState,
    PaymentAttempt,
    Voiding,
)
from billing.receivables import invoice_events
from billing.rules.money import Money
from billing.rules.period import midnight
from billing.wallets import invoice_payments
from portal.errors import CodedError


class VoidError(CodedError):
    """An invoice cannot be made void; the message says why and what to do."""

    sentences = SENTENCES


def describe_effect(invoice: Invoice) -> str:
    """What making it void would do, for whoever confirms it."""
    total = Money.from_minor(invoice.total, invoice.currency)
    return (
        f"{invoice} of {invoice.tenant} over {total.text} {total.currency} becomes void: it is not to be paid any "
        "more, what a wallet paid of it goes back there, and its period is open again."
    )


@transaction.atomic
def void_invoice(
    *, invoice: Invoice, reason: str, by: str, on: date, moment: datetime | None = None
) -> Invoice:
    """Make an issued, unpaid invoice void and open its period again; the next close of it issues another.

    What a wallet paid on it goes back to the grants that it came from, at `moment`; None: when the day begins where
    the invoice was issued.

    Refused the second time, as for a draft, a credit note, an invoice that was paid or credited, and one
    after which another document of the tenant was issued, which counts on what this one billed: those
    can be credited. Raises VoidError.
    """
    numbering.lock(invoice.tenant)
    invoice = Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)
    if not reason.strip():
        raise VoidError("void-without-reason")
    _refuse(invoice)
    Voiding.objects.create(invoice=invoice, tenant_id=invoice.tenant_id, on=on, reason=reason.strip(), by=by)
    BillingPeriod.objects.filter(pk=invoice.period_id).update(closed_at=None)  # grants wait for it again
    invoice_payments.take_back(invoice=invoice, at=moment or midnight(on, zone=ZoneInfo(invoice.timezone)))
    Invoice.objects.filter(pk=invoice.pk).update(state=InvoiceState.VOID)
    invoice.state = InvoiceState.VOID
    invoice_events.record_voided(invoice)
    return invoice


def _refuse(invoice: Invoice) -> None:
    if invoice.kind == DocumentKind.CREDIT_NOTE:
        raise VoidError("void-of-credit-note", invoice=invoice)
    if invoice.state == InvoiceState.VOID:
        raise VoidError("already-void", invoice=invoice)
    if invoice.state != InvoiceState.ISSUED:
        raise VoidError("not-voidable", invoice=invoice, state=invoice.state)
    if invoice.payments.aggregate(sum=Sum("amount"))["sum"]:
        raise VoidError("void-of-paid", invoice=invoice)
    if PaymentAttempt.objects.filter(UNDER_WAY, invoice=invoice).exists():
        raise VoidError("payment-under-way", invoice=invoice)
    if CheckoutSession.objects.filter(attempt__invoice=invoice, state__in=OPEN_CHECKOUTS).exists():
        raise VoidError("payment-page-open", invoice=invoice)
    note = invoice.credit_notes.issued().order_by("pk").first()
    if note is not None:
        raise VoidError("already-credited", invoice=invoice, note=note)
    after = _later_document(invoice)
    if after is not None:
        raise VoidError("later-document", after=after, invoice=invoice)


def _later_document(invoice: Invoice) -> Invoice | None:
    """The last document that was billed on top of this one; what was credited by hand is not.

    Where nothing was ever used, all of them reach as far: to nowhere.
    """
    by_hand = Q(kind=DocumentKind.CREDIT_NOTE, rated_through=0) & ~Q(terms__has_key=CLOSED_PERIOD)
    later = Q(rated_through__gt=invoice.rated_through) | Q(rated_through=invoice.rated_through) & (
        Q(pk__gt=invoice.pk) | Q(period=invoice.period_id)
    )
    documents = (
        Invoice.objects.issued().filter(later & ~by_hand, tenant=invoice.tenant_id).exclude(pk=invoice.pk)
    )
    return documents.order_by("-rated_through", "-pk").first()
