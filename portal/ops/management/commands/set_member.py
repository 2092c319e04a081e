"""`set_member SLUG EMAIL --role ROLE` or `--remove`: who belongs to a tenant, and with which role."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from portal.core.tenants import team
from portal.core.tenants.models import Membership, Role, User
from portal.core.tenants.team import TeamError
from portal.ops.cli import Answer, OperatorCommand, RefusedError
from portal.ops.lookups import the_tenant


class Command(OperatorCommand):
    help = "Let somebody into a tenant without an invitation, change their role, or take them out."
    refusals = (TeamError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="SLUG")
        parser.add_argument("email", metavar="EMAIL")
        wish = parser.add_mutually_exclusive_group(required=True)
        wish.add_argument("--role", choices=[*Role.values])
        wish.add_argument("--remove", action="store_true", help="own API keys of the person stop working")

    def answer(self, **options: Any) -> Answer:
        tenant, email = the_tenant(options["tenant"]), team.plain_address(options["email"])
        person = User.objects.filter(email=email).first()
        if not options["remove"]:
            person = person or User.objects.create_user(email)
            member = team.add_member(tenant=tenant, user=person, role=Role(options["role"]))
            data = {"tenant": tenant.slug, "email": email, "role": member.role}
            return Answer(data, f"{email} has the role {member.role} in {tenant.slug}.")
        row = Membership.objects.filter(tenant=tenant, user=person).first() if person else None
        if row is None:
            raise RefusedError(f"{email} is not a member of {tenant.slug}.")
        team.remove_member(member=row)
        return Answer(
            {"tenant": tenant.slug, "email": email, "role": ""}, f"{email} is removed from {tenant.slug}."
        )
