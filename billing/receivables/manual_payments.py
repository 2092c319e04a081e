"""Bank transfers that people record by hand: what is paid too much becomes the tenant's credit, as of a statement's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from django.db import transaction

from billing.catalog.tenant_lock import lock
from billing.models import Invoice, Payment
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
    mistake, or is money that went back: what became credit goes first. Raises PaymentError or CreditBalanceError.
    """
    lock(invoice.tenant)
    back = 0
    if amount.currency == invoice.currency and amount == amount.rounded():  # else it is refused below
        existing = settlement.find_payment(
            invoice=invoice, amount=amount, received_on=received_on, reference=reference
        )
        if existing is not None:
            return RecordedTransfer(existing, Money.zero(invoice.currency))
        settlement.check_day(invoice=invoice, received_on=received_on, at=at)
        most = -amount.minor + min(_due_amount(invoice, received_on), 0)
        back = credit_balance.return_overpayment(invoice=invoice, most=most, at=at, on=received_on)
    payment = settlement.record_payment(
        invoice=invoice, amount=amount, received_on=received_on, reference=reference, recorded_by=recorded_by
    )
    over = max(min(payment.amount, -_due_amount(invoice, received_on)), 0)
    if over:
        credit_balance.take_overpayment(invoice=invoice, amount=over, at=at, on=received_on)
        credit_balance.use_credit(tenant=invoice.tenant, currency=invoice.currency, at=at, on=at.date())
    return RecordedTransfer(payment, Money.from_minor(over - back, invoice.currency))


def _due_amount(invoice: Invoice, on: date) -> int:
    return settlement.load_balance(invoice=invoice, on=on).due.minor
