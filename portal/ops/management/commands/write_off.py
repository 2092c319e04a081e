"""`write_off NUMBER --reason TEXT`: give up what an invoice has due, or take that back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.catalog import billing_periods
from billing.receivables import settlement, write_offs
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_invoice


class Command(OperatorCommand):
    help = "Write off what an issued invoice has due: it is told apart, and comes back when it is paid after all."
    refusals: ClassVar[tuple[type[Exception], ...]] = (write_offs.WriteOffError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", metavar="NUMBER", help="the invoice's")
        parser.add_argument("--reason", metavar="TEXT", required=True, help="why; it is kept in the history")
        parser.add_argument(
            "--take-back", action="store_true", help="have what is written off of it due again instead"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    def answer(self, **options: Any) -> Answer:
        invoice = the_invoice(options["number"])
        now, why = datetime.now(UTC), options["reason"]
        today = billing_periods.day_of(now, invoice.period)
        if self.asks(yes=options["yes"]):
            effect = (
                write_offs.describe_reversal(invoice)
                if options["take_back"]
                else write_offs.describe_effect(invoice, on=today)
            )
            self.confirm(f"{effect} Go on?")
        with acting_as("write_off", why=why):
            if options["take_back"]:
                write_offs.reverse_write_off(invoice=invoice, reason=why, by="write_off", moment=now)
            else:
                write_offs.write_off_invoice(invoice=invoice, reason=why, by="write_off", on=today)
        stand = settlement.load_balance(invoice=invoice, on=today)
        sums = ("from_wallet", "paid", "credited", "written_off", "due")
        return Answer(
            {
                "invoice": invoice.number,
                "currency": invoice.currency,
                **{name: getattr(stand, name).text for name in sums},
                "status": stand.settlement.value,
            },
            f"{invoice.number}: {stand.written_off.text} {invoice.currency} written off, {stand.due.text} due.",
        )
