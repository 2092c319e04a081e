"""`void_invoice NUMBER --reason TEXT`: take an unpaid invoice back; its period can be closed again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing.catalog import billing_periods
from billing.invoicing import voids
from billing.payments import checkout_sessions
from billing.payments.gateway_access import CollectionError
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_invoice


class Command(OperatorCommand):
    help = "Make an issued, unpaid invoice void. It keeps its number; its usage is pending, its period open again."
    refusals: ClassVar[tuple[type[Exception], ...]] = (voids.VoidError, CollectionError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", metavar="NUMBER", help="the invoice's")
        parser.add_argument(
            "--reason", metavar="TEXT", required=True, help="why; it is kept with the invoice"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    def answer(self, **options: Any) -> Answer:
        invoice = the_invoice(options["number"])
        if self.asks(yes=options["yes"]):
            self.confirm(f"{voids.describe_effect(invoice)} Make it void?")
        now = datetime.now(UTC)
        checkout_sessions.withdraw_pages(invoice=invoice, moment=now)
        with acting_as("void_invoice", why=options["reason"]):
            today = billing_periods.day_of(now, invoice.period)
            invoice = voids.void_invoice(
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
