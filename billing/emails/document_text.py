"""The text of e-mails about documents, payments and refunds."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _

from billing.bank_transfers.transfer_posting import payment_reference
from billing.emails.formatting import format_day, load_transfer_details, one_line, page_url
from billing.models import (
    BillingAccount,
    Invoice,
    InvoiceDocument,
    MethodState,
    Notice,
    NoticeKind,
    Payment,
    PaymentAttempt,
    PaymentRefund,
    SavedMethod,
    TransferPart,
    Wallet,
)
from billing.payments import charge_attempts, gateway_access, payment_posting
from billing.payments.card_notices import format_card, localized_card
from billing.payments.charge_attempts import NotChargeableError
from billing.receivables import credit_balance, settlement
from billing.rules.formatting import money_text
from billing.rules.money import Money
from billing.rules.period import last_day

Context = dict[str, Any]


def document_context(notice: Notice, moment: datetime) -> Context:
    """Of a notice of these kinds, what its template places."""
    if notice.kind == NoticeKind.REFUND:
        return _refund_context(notice)
    if notice.kind == NoticeKind.RECEIPT and notice.attempt is not None:
        return _top_up_context(notice.attempt)
    if "part" in notice.details:
        return _transfer_context(
            TransferPart.objects.select_related("transfer", "grant").get(pk=notice.details["part"])
        )
    if notice.invoice is None:
        raise TypeError("a document, and a payment of an invoice, has its invoice")
    page = _invoice_page(notice.invoice)
    if notice.kind == NoticeKind.RECEIPT:
        return page | _payment_context(Payment.objects.get(pk=notice.details["payment"]), moment)
    page |= {"attached": InvoiceDocument.objects.filter(invoice=notice.invoice_id).exists()}
    if notice.kind == NoticeKind.CREDIT_NOTE:
        return page | _credit_note_context(notice.invoice, moment)
    return page | _issued_context(notice.invoice, moment)


def _invoice_page(invoice: Invoice) -> Context:
    number = invoice.number or ""
    is_credit = invoice.original_id and invoice.total < 0
    button = _("Credit note {number}") if is_credit else _("Invoice {number}")
    return {
        "number": number,
        "button": button.format(number=number),
        "page": page_url("invoice", invoice.tenant.slug, number),
    }


def _issued_context(invoice: Invoice, moment: datetime) -> Context:
    stand = settlement.load_balance(invoice=invoice, on=moment.date())
    total = money_text(Money.from_minor(invoice.total, invoice.currency))
    zone = ZoneInfo(invoice.timezone)
    first = invoice.period_start.astimezone(zone).date()
    last = last_day(invoice.period_end, zone=zone)
    facts = [
        (_("Invoice"), invoice.number or ""),
        (_("Period"), _("{first} to {last}").format(first=format_day(first), last=format_day(last))),
        (_("Total"), total),
    ]
    if stand.from_wallet.minor:
        facts.append((_("Paid from your wallet"), money_text(stand.from_wallet)))
    due_day = format_day(invoice.due_on) if invoice.due_on else ""
    if stand.due.minor > 0:
        facts += [
            (_("Amount due"), money_text(stand.due)),
            (_("Due on"), due_day),
            *load_transfer_details(invoice),
        ]
    return {
        "total": total,
        "amount": money_text(stand.due),
        "is_due": stand.due.minor > 0,
        "due_day": due_day,
        "charged": _charged_card(invoice, stand.due),
        "facts": facts,
    }


def _charged_card(invoice: Invoice, due: Money) -> str:
    """The card that is charged automatically when it is due; "" where none is, or so much or so little cannot be."""
    by_hand = BillingAccount.objects.filter(tenant=invoice.tenant_id, automatic=False)
    chargeable = charge_attempts.chargeable_amount(due.minor, due.currency)
    if not gateway_access.is_configured() or by_hand.exists() or isinstance(chargeable, NotChargeableError):
        return ""
    usable = SavedMethod.objects.filter(tenant=invoice.tenant_id, state=MethodState.USABLE, preferred=True)
    card = usable.first()
    return one_line(format_card(card)) if card else ""


def _credit_note_context(note: Invoice, moment: datetime) -> Context:
    amount = money_text(Money.from_minor(-note.total, note.currency))
    facts = [(_("Credit note"), note.number or ""), (_("Credited"), amount)]
    values: Context = {"amount": amount, "why": one_line(note.reason or ""), "of": ""}
    if note.original is not None:
        stand = settlement.load_balance(invoice=note.original, on=moment.date())
        facts.insert(1, (_("For invoice"), note.original.number or ""))
        values |= {
            "of": note.original.number or "",
            "left": money_text(stand.due) if stand.due.minor > 0 else "",
            "back": money_text(-stand.due) if stand.due.minor < 0 else "",
        }
    return values | {"facts": facts}


def _payment_context(payment: Payment, moment: datetime) -> Context:
    invoice = payment.invoice
    amount = Money.from_minor(payment.amount, invoice.currency)
    left = settlement.load_balance(invoice=invoice, on=moment.date()).due
    how, on = _payment_way(payment), format_day(payment.received_on)
    facts = [(_("Amount"), money_text(amount)), (_("Paid by"), how), (_("Received on"), on)]
    facts.append((_("For invoice"), invoice.number or ""))
    if left.minor > 0:
        facts.append((_("Amount due"), money_text(left)))
    return {
        "amount": money_text(amount),
        "due": amount,
        "how": how,
        "from_credit": payment.recorded_by == credit_balance.REFERENCE,
        "received_on": on,
        "left": money_text(left) if left.minor > 0 else "",
        "facts": facts,
        "row": (
            _("Invoice {number}, {how}, {day}").format(number=invoice.number, how=how, day=on),
            money_text(amount),
        ),
    }


def _payment_way(payment: Payment) -> str:
    """`Visa ending in 4242`, `bank transfer`."""
    if payment.recorded_by == credit_balance.REFERENCE:
        return _("your credit balance")
    attempt = None
    if payment.recorded_by == payment_posting.BY:
        candidates = PaymentAttempt.objects.filter(external_id=payment.reference).select_related("method")
        attempt = candidates.first()
    return payment_method_text(attempt) if attempt else _bank_transfer(one_line(payment.reference))


def _bank_transfer(reference: str) -> str:
    return _("bank transfer {reference}").format(reference=reference)


def payment_method_text(attempt: PaymentAttempt) -> str:
    """What was paid with, as far as it is known."""
    if attempt.method is not None and attempt.method.last4:
        return one_line(format_card(attempt.method))
    return one_line(localized_card(attempt.paid_with)) or _("card")


def _top_up_context(attempt: PaymentAttempt) -> Context:
    if attempt.top_up is None:
        raise TypeError("without an invoice it is for a wallet")
    on = (attempt.settled_at or attempt.created_at).astimezone(attempt.tenant.zone).date()
    return _wallet_context(attempt.top_up.wallet, attempt.amount, payment_method_text(attempt), on)


def _transfer_context(part: TransferPart) -> Context:
    if part.grant is None:
        raise TypeError("what paid an invoice is told of as its payment")
    how = _bank_transfer(one_line(payment_reference(part.transfer)))
    return _wallet_context(part.grant.wallet, part.amount, how, part.transfer.booked_on)


def _wallet_context(filled: Wallet, minor: int, how: str, day: date) -> Context:
    amount = Money.from_minor(minor, filled.unit)
    wallet, on = one_line(str(filled)), format_day(day)
    return {
        "amount": money_text(amount),
        "due": amount,
        "how": how,
        "received_on": on,
        "wallet": wallet,
        "facts": [
            (_("Amount"), money_text(amount)),
            (_("Paid by"), how),
            (_("Received on"), on),
            (_("For wallet"), wallet),
        ],
        "row": (
            _("Wallet {wallet}, {how}, {day}").format(wallet=wallet, how=how, day=on),
            money_text(amount),
        ),
        "button": _("Your wallet"),
        "page": page_url("wallet", filled.tenant.slug, filled.pk),
    }


def _refund_context(notice: Notice) -> Context:
    note = ""
    if "refund" in notice.details:
        refund = PaymentRefund.objects.select_related("attempt__method", "credit_note").get(
            pk=notice.details["refund"]
        )
        amount = Money.from_minor(refund.amount, refund.attempt.currency)
        how, note = payment_method_text(refund.attempt), str(refund.credit_note or "")
    else:
        payment = Payment.objects.select_related("invoice").get(pk=notice.details["payment"])
        amount = Money.from_minor(-payment.amount, payment.invoice.currency)
        how = _bank_transfer(payment.reference)
    facts = [(_("Refund"), money_text(amount)), (_("To"), how)]
    page = _invoice_page(notice.invoice) if notice.invoice is not None else {}
    if notice.invoice is not None:
        facts.append((_("Of invoice"), notice.invoice.number or ""))
    if note:
        facts.append((_("Credit note"), note))
    by_transfer = "payment" in notice.details
    return page | {
        "amount": money_text(amount),
        "how": how,
        "by_transfer": by_transfer,
        "note": note,
        "facts": facts,
    }
