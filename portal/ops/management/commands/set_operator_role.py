"""`set_operator_role EMAIL ROLE`: make somebody an operator, change the role, or take it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from portal.core.tenants.models import OperatorRole
from portal.core.tenants.operators import set_operator_role
from portal.core.tenants.team import TeamError
from portal.ops.cli import Answer, OperatorCommand

NONE = "none"


class Command(OperatorCommand):
    help = "Give a person an operator's role. An address without an account gets one."
    refusals = (TeamError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL")
        parser.add_argument("role", choices=[*OperatorRole.values, NONE], help="none: no operator any more")

    def answer(self, **options: Any) -> Answer:
        role = None if options["role"] == NONE else OperatorRole(options["role"])
        person = set_operator_role(email=options["email"], role=role)
        text = (
            f"{person.email} is no operator."
            if role is None
            else f"{person.email} has the role {role.value}."
        )
        return Answer({"email": person.email, "role": person.operator_role}, text)
