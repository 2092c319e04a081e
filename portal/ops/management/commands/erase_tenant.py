"""`erase_tenant SLUG --why REASON`: erase what is kept of an archived tenant's people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.documents.job_users import NamesInFilesError
from billing.invoicing import offboarding
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_tenant


class Command(OperatorCommand):
    help = "Erase the people and the contact of an archived tenant. Its documents stay as they were issued."
    refusals: ClassVar[tuple[type[Exception], ...]] = (offboarding.ArchiveError, NamesInFilesError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="SLUG")
        parser.add_argument("--why", metavar="REASON", required=True, help="kept in the history")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        with acting_as("erase_tenant", why=options["why"]):
            gone = offboarding.erase_tenant(tenant=tenant, moment=datetime.now(UTC).replace(microsecond=0))
        people = "1 person" if len(gone) == 1 else f"{len(gone)} people"
        text = (
            f"{people} and the contact of {tenant.slug} are erased. Its documents stay as they were issued."
        )
        customer = offboarding.gateway_customer(tenant)
        if customer:
            text = f"{text}\nStripe still knows it as customer {customer}, with its cards: delete that there."
        return Answer({"tenant": tenant.slug, "people": len(gone), "customer": customer}, text)
