"""`set_member_view SLUG own`: have members of a tenant see their own jobs alone, as the team page does."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from portal.core.audit import acting_as
from portal.core.tenants import team
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_tenant

OWN, EVERYTHING = "own", "everything"


class Command(OperatorCommand):
    help = (
        "Have members of a tenant see their own jobs and the totals of their projects alone, or everything."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="SLUG")
        parser.add_argument("view", choices=[OWN, EVERYTHING])

    def answer(self, **options: Any) -> Answer:
        tenant, own = the_tenant(options["tenant"]), options["view"] == OWN
        with acting_as("set_member_view"):
            team.show_members_own(tenant=tenant, own=own)
        sees = "their own jobs and the totals of their projects" if own else "everything"
        return Answer(
            {"tenant": tenant.slug, "members_see_own": own}, f"Members of {tenant.slug} see {sees}."
        )
