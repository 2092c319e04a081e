"""`add_line TENANT AMOUNT --description TEXT --why TEXT`: put a line by hand on the tenant's next invoice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.invoicing import manual_lines
from billing.models import Subscription
from billing.rules.money import Money
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Add an amount before tax to a tenant's next invoice; below zero it takes off."
    refusals: ClassVar[tuple[type[Exception], ...]] = (manual_lines.ManualLineError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="its slug")
        parser.add_argument(
            "amount", metavar="AMOUNT", help="before tax, such as 50.00; below zero takes off"
        )
        parser.add_argument(
            "--description", metavar="TEXT", required=True, help="as it stands on the invoice"
        )
        parser.add_argument("--why", metavar="TEXT", required=True, help="kept here, not on the invoice")
        parser.add_argument("--currency", help="the tenant's plan's unless said")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        today = datetime.now(UTC).date()
        try:
            net = Money.of(options["amount"], options["currency"] or _currency(tenant))
        except ValueError as error:
            raise BadInputError(sentence(error)) from error
        with acting_as("add_line", why=options["why"]):
            line = manual_lines.add_manual_line(
                tenant=tenant,
                description=options["description"],
                net=net,
                reason=options["why"],
                by="add_line",
                on=today,
            )
        return Answer(
            {
                "line": line.pk,
                "tenant": tenant.slug,
                "description": line.description,
                "amount": net.text,
                "currency": net.currency,
            },
            f"Line {line.pk} is for the next invoice of {tenant.slug}: {line}.",
        )


def _currency(tenant: Tenant) -> str:
    newest = Subscription.objects.filter(tenant=tenant).order_by("-since").select_related("plan").first()
    if newest is None:
        raise BadInputError(f"{tenant.slug} is on no plan: say the --currency.")
    return newest.plan.currency
