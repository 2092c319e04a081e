"""`record_payment NUMBER AMOUNT`: record that an invoice was paid by bank transfer."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.models import Invoice
from billing.receivables import manual_payments, settlement
from billing.rules.money import Money
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_invoice
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Record a bank transfer for an issued invoice. The same transfer again changes nothing."
    refusals: ClassVar[tuple[type[Exception], ...]] = manual_payments.REFUSALS

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", metavar="NUMBER", help="the invoice's")
        parser.add_argument("amount", metavar="AMOUNT", help="in the invoice's currency, such as 1234.50")
        parser.add_argument("--reference", required=True, help="as on the bank statement")
        parser.add_argument("--on", metavar="DATE", help="the day it arrived; today")

    def answer(self, **options: Any) -> Answer:
        invoice = the_invoice(options["number"])
        now = datetime.now(UTC)
        today = now.date()
        try:
            amount = Money.of(options["amount"], invoice.currency)
            if amount != amount.rounded():
                raise BadInputError(f"{options['amount']} is finer than {invoice.currency} has coins for.")
            on = date.fromisoformat(options["on"]) if options["on"] else today
        except ValueError as error:
            raise BadInputError(sentence(error)) from error
        with acting_as("record_payment"):
            received = manual_payments.record_transfer(
                invoice=invoice,
                amount=amount,
                received_on=on,
                reference=options["reference"],
                recorded_by="record_payment",
                at=now,
            )
        stand = settlement.load_balance(invoice=invoice, on=today)
        return Answer(
            {
                "invoice": invoice.number,
                "payment": received.payment.pk,
                "amount": amount.text,
                "from_wallet": stand.from_wallet.text,
                "paid": stand.paid.text,
                "credited": stand.credited.text,
                "written_off": stand.written_off.text,
                "due": stand.due.text,
                "to_credit": received.to_credit.text,
                "currency": invoice.currency,
                "status": stand.settlement.value,
            },
            f"{invoice.number}: {stand.paid.text} {invoice.currency} paid, {stand.due.text} due: "
            f"{stand.settlement.value.replace('_', ' ')}.{_credit_text(invoice, received.to_credit)}",
        )


def _credit_text(invoice: Invoice, to_credit: Money) -> str:
    """What became of what was paid too much, or where what is taken back came from."""
    if not to_credit.amount:
        return ""
    moved = Money(abs(to_credit.amount), to_credit.currency).text
    way = "went to" if to_credit.amount > 0 else "came from"
    return f" {moved} {invoice.currency} {way} the credit balance of {invoice.tenant.slug}."
