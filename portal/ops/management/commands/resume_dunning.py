"""`resume_dunning TENANT`: go on with what was let rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from billing.receivables import pauses
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import invoice_of, the_tenant
from portal.ops.management.commands.pause_dunning import add_targets


class Command(OperatorCommand):
    help = "Go on with a tenant's invoices, or one of them, after pause_dunning."

    def arguments(self, parser: CommandParser) -> None:
        add_targets(parser)

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        invoice = invoice_of(tenant, options["invoice"]) if options["invoice"] else None
        with acting_as("resume_dunning"):
            was = pauses.resume_dunning(
                tenant=tenant, invoice=invoice, by="resume_dunning", moment=datetime.now(UTC)
            )
        whose = invoice or f"every invoice of {tenant.slug}"
        return Answer(
            {"tenant": tenant.slug, "invoice": invoice.number if invoice else None, "resumed": was},
            f"It goes on with {whose}."
            if was
            else f"Nothing to resume: {whose} was not paused by that name.",
        )
