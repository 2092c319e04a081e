"""`pause_dunning TENANT --why TEXT`: charge, write and suspend nothing for a while."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.receivables import pauses
from portal.core.audit import acting_as
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import invoice_of, the_tenant


def add_targets(parser: CommandParser) -> None:
    parser.add_argument("tenant", metavar="TENANT")
    parser.add_argument("--invoice", metavar="NUMBER", help="this one; all of the tenant's unless said")


class Command(OperatorCommand):
    help = "Let all of a tenant's invoices rest, or one of them: nothing is charged, written or suspended."
    refusals: ClassVar[tuple[type[Exception], ...]] = (pauses.PauseError,)

    def arguments(self, parser: CommandParser) -> None:
        add_targets(parser)
        parser.add_argument("--why", metavar="TEXT", required=True, help="kept with the pause")
        parser.add_argument(
            "--until", metavar="DATE", help="the day on which it goes on by itself; never unless said"
        )

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        invoice = invoice_of(tenant, options["invoice"]) if options["invoice"] else None
        try:
            until = date.fromisoformat(options["until"]) if options["until"] else None
        except ValueError as error:
            raise BadInputError(
                f"--until {quoted(options['until'])} is no day; write one like 2026-12-31."
            ) from error
        with acting_as("pause_dunning", why=options["why"]):
            row = pauses.pause_dunning(
                tenant=tenant,
                invoice=invoice,
                until=until,
                reason=options["why"],
                by="pause_dunning",
                moment=datetime.now(UTC),
            )
        when = f"until {row.until}" if row.until else "until it is resumed"
        return Answer(
            {"tenant": tenant.slug, "invoice": invoice.number if invoice else None, "until": row.until},
            f"{invoice or f'Every invoice of {tenant.slug}'} rests {when}.",
        )
