"""`let_leave SLUG`: end the accounts and the plan of a tenant that asked to leave, as the page *Let leave* does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser
from django.db import transaction

from billing.catalog.plans import PlanError
from billing.sign_up import departures
from billing.sign_up.policy import SignUpError
from portal.core.audit import acting_as
from portal.core.tenants.ownership import OwnershipConflictError
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_tenant


class Command(OperatorCommand):
    help = (
        "End the accounts and the plan of a tenant that asked to leave, now. The next close bills the rest."
    )
    refusals: ClassVar[tuple[type[Exception], ...]] = (SignUpError, PlanError, OwnershipConflictError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="SLUG")
        parser.add_argument("--why", metavar="REASON", default="", help="kept in the history")
        parser.add_argument("--dry-run", action="store_true", help="answer as if, and keep nothing")

    def answer(self, **options: Any) -> Answer:
        tenant, moment = the_tenant(options["tenant"]), datetime.now(UTC).replace(microsecond=0)
        with transaction.atomic(), acting_as("let_leave", why=options["why"]):
            ended = departures.carry_out(tenant=tenant, moment=moment)
            transaction.set_rollback(options["dry_run"])
        would = "would end" if options["dry_run"] else "ended"
        return Answer(
            {"tenant": tenant.slug, "accounts_ended": ended, "dry_run": options["dry_run"]},
            f"{would}: {ended} accounts of {tenant.slug}, and its plan.",
        )
