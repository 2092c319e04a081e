"""`invite_member SLUG EMAIL --role ROLE`: ask somebody into a tenant by e-mail, as its team page does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from portal.core.tenants import account_mails, invitation_links, invitations
from portal.core.tenants.models import Role
from portal.core.tenants.team import TeamError
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_tenant


class Command(OperatorCommand):
    help = "Invite somebody into a tenant. Without a mail server, the link is printed."
    refusals = (TeamError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="SLUG")
        parser.add_argument("email", metavar="EMAIL")
        parser.add_argument("--role", required=True, choices=[*Role.values])
        parser.add_argument("--by", metavar="EMAIL", default="Your operator", help="who invites, in the mail")

    def answer(self, **options: Any) -> Answer:
        row = invitations.invite(
            tenant=the_tenant(options["tenant"]),
            email=options["email"],
            role=Role(options["role"]),
            by=options["by"][:254],
            moment=datetime.now(UTC),
            shows_link=True,
        )
        data = {"email": row.email, "role": row.role, "expires_at": row.expires_at}
        if account_mails.can_send():
            return Answer(data, f"{row.email} is invited by e-mail.")
        link = invitation_links.url_of(row)
        return Answer({**data, "link": link}, f"E-mail is not configured. Give {row.email} this link: {link}")
