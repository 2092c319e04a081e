"""`void_invoice NUMBER --reason TEXT`: take an unpaid invoice back; its period can be closed again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing import calendar, voiding
from billing.collecting import links
from billing.collecting.door import CollectingError
from billing.models import Invoice
from portal.audit import acting_as
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand


class Command(OperatorCommand):
    help = "Make an issued, unpaid invoice void. It keeps its number; its usage is pending, its period open again."
    refusals: ClassVar[tuple[type[Exception], ...]] = (voiding.VoidError, CollectingError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", metavar="NUMBER", help="the invoice's")
        parser.add_argument(
            "--reason", metavar="TEXT", required=True, help="why; it is kept with the invoice"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    def answer(self, **options: Any) -> Answer:
        invoice = Invoice.objects.select_related("tenant", "period").filter(number=options["number"]).first()
        if invoice is None:
            raise BadInputError(
                f"There is no invoice {quoted(options['number'])}; `show_invoices` lists them."
            )
        if self.asks(yes=options["yes"]):
            self.confirm(f"{voiding.effect(invoice)} Make it void?")
        now = datetime.now(UTC)
        links.withdraw(invoice=invoice, moment=now)
        with acting_as("void_invoice", why=options["reason"]):
            today = calendar.day_of(now, invoice.period)
            invoice = voiding.void(
                invoice=invoice, reason=options["reason"], by="void_invoice", on=today, moment=now
            )
        month = invoice.period_start.astimezone(ZoneInfo(invoice.timezone)).strftime("%Y-%m")
        return Answer(
            {
                "invoice": invoice.number,
                "tenant": invoice.tenant.slug,
                "month": month,
                "status": invoice.state,
                "reason": options["reason"],
            },
            f"{invoice.number} is void. `close_period {month} --tenant {invoice.tenant.slug}` issues another.",
        )
