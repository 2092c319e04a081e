"""`credit_invoice NUMBER --reason TEXT`: give back all or a part of an issued invoice."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.catalog import billing_periods
from billing.invoicing import credit_note_previews, credit_notes
from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_invoice
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Issue a credit note for an issued invoice: for all that is left of it, for one line, or for an amount."
    refusals: ClassVar[tuple[type[Exception], ...]] = (credit_notes.CreditError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", metavar="NUMBER", help="the invoice's")
        parser.add_argument(
            "--reason", metavar="TEXT", required=True, help="why; it stands on the credit note"
        )
        parser.add_argument(
            "--net", metavar="AMOUNT", help="before tax, such as 50.00; all that is left unless said"
        )
        parser.add_argument("--line", type=int, metavar="N", help="of this line only")
        parser.add_argument(
            "--on", metavar="DATE", help="the day of the credit note where its invoice was issued; today"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    def answer(self, **options: Any) -> Answer:
        invoice = the_invoice(options["number"])
        now, line = datetime.now(UTC), options["line"]
        today = billing_periods.day_of(now, invoice.period)
        try:
            net = Money.of(options["net"], invoice.currency) if options["net"] else None
            if net is not None and net != net.rounded():
                raise BadInputError(f"{options['net']} is finer than {invoice.currency} has coins for.")
            on = date.fromisoformat(options["on"]) if options["on"] else today
        except ValueError as error:
            raise BadInputError(sentence(error)) from error
        if on > today:
            raise BadInputError(f"--on lies in the future: it is {today} where {invoice} was issued.")
        if self.asks(yes=options["yes"]):
            preview = credit_note_previews.preview_credit(
                invoice=invoice, on=on, moment=now, net=net, position=line
            )
            self.confirm(f"{preview.sentence} Issue it?")
        with acting_as("credit_invoice", why=options["reason"]):
            note = credit_notes.issue_credit_note(
                invoice=invoice,
                reason=options["reason"],
                by="credit_invoice",
                on=on,
                net=net,
                position=line,
                moment=now,
            )
        stand = settlement.load_balance(invoice=invoice, on=today)
        total = Money.from_minor(note.total, note.currency)
        return Answer(
            {
                "credit_note": note.number,
                "invoice": invoice.number,
                "currency": note.currency,
                "total": total.text,
                "from_wallet": stand.from_wallet.text,
                "paid": stand.paid.text,
                "credited": stand.credited.text,
                "written_off": stand.written_off.text,
                "due": stand.due.text,
                "status": stand.settlement.value,
            },
            f"{note.number}: {(-total).text} {note.currency} of {invoice.number} given back; "
            f"{stand.due.text} due: {stand.settlement.value.replace('_', ' ')}.",
        )
