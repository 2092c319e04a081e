"""Bank transfers that people record by hand: what is paid too much becomes the tenant's credit, as of a statement's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from django.db import transaction

from billing.catalog.tenant_lock import lock
from billing.models import REFUNDS_UNDER_WAY, Invoice, Payment, PaymentRefund
from billing.receivables import credit_balance, settlement
from billing.receivables.credit_balance import CreditBalanceError
from billing.rules.money import Money

REFUSALS = (settlement.PaymentError, CreditBalanceError)


@dataclass(frozen=True, slots=True)
class RecordedTransfer:
    """A transfer as it was recorded; `to_credit` of it went to the credit balance, or came from there if below zero."""

    payment: Payment
    to_credit: Money


@transaction.atomic
def record_transfer(
    *, invoice: Invoice, amount: Money, received_on: date, reference: str, recorded_by: str, at: datetime
) -> RecordedTransfer:
    """Record a transfer; what the invoice has not due is credit of its tenant, which pays what else is due.

    The same transfer again, the same payment, and nothing moves. A negative amount takes back one that was recorded by
    mistake, or is money that went back: what became credit goes first, and what a refund to the card gives back is not
    given back by a transfer, too. Raises PaymentError or CreditBalanceError.
    """
    lock(invoice.tenant)
    Invoice.objects.select_for_update(no_key=True).get(pk=invoice.pk)  # no refund begins meanwhile
    under_way = PaymentRefund.objects.filter(attempt__invoice=invoice, state__in=REFUNDS_UNDER_WAY)
    refunds = list(under_way.order_by("created_at", "pk"))
    back, on_its_way = 0, sum(refund.amount for refund in refunds)
    if amount.currency == invoice.currency and amount == amount.rounded():  # else it is refused below
        existing = settlement.find_payment(
            invoice=invoice, amount=amount, received_on=received_on, reference=reference
        )
        if existing is not None:
            return RecordedTransfer(existing, Money.zero(invoice.currency))
        settlement.check_day(invoice=invoice, received_on=received_on, at=at)
        most = -amount.minor + min(_due_amount(invoice, received_on) + on_its_way, 0)
        back = credit_balance.return_overpayment(invoice=invoice, most=most, at=at, on=received_on)
    payment = settlement.record_payment(
        invoice=invoice, amount=amount, received_on=received_on, reference=reference, recorded_by=recorded_by
    )
    due = _due_amount(invoice, received_on)
    if payment.amount < 0 < due + on_its_way and refunds:
        raise _beside_refund(refunds[0], most=-payment.amount - due - on_its_way)
    over = max(min(payment.amount, -due), 0)
    if over:
        credit_balance.take_overpayment(invoice=invoice, amount=over, at=at, on=received_on)
        credit_balance.use_credit(tenant=invoice.tenant, currency=invoice.currency, at=at, on=at.date())
    return RecordedTransfer(payment, Money.from_minor(over - back, invoice.currency))


def _beside_refund(refund: PaymentRefund, *, most: int) -> settlement.PaymentError:
    """`most`: minor units that can be taken back all the same."""
    return settlement.PaymentError(
        "refund-under-way",
        invoice=refund.attempt.invoice,
        amount=Money.from_minor(refund.amount, refund.attempt.currency).text,
        currency=refund.attempt.currency,
        day=refund.created_at.date(),
        who=refund.requested_by,
        most=Money.from_minor(max(most, 0), refund.attempt.currency).text,
    )


def _due_amount(invoice: Invoice, on: date) -> int:
    return settlement.load_balance(invoice=invoice, on=on).due.minor
