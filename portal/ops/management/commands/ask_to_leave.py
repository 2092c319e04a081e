"""`ask_to_leave SLUG DAY`: what a tenant's owner does on *Change plan or leave*, to leave."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.sign_up import departures
from billing.sign_up.policy import SignUpError
from portal.api.parameters import parse_day
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.ops.plan_changes import departure_data, departure_line


class Command(OperatorCommand):
    help = "Ask that a tenant leaves on a day, or take that back. Nothing ends before let_leave."
    refusals: ClassVar[tuple[type[Exception], ...]] = (SignUpError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="SLUG")
        chosen = parser.add_mutually_exclusive_group(required=True)
        chosen.add_argument("day", metavar="DAY", nargs="?", help="the first day without service")
        chosen.add_argument("--stay", action="store_true", help="take it back")
        parser.add_argument("--reason", default="", help="kept with it")

    def answer(self, **options: Any) -> Answer:
        tenant, moment = the_tenant(options["tenant"]), datetime.now(UTC).replace(microsecond=0)
        with acting_as("ask_to_leave"):
            if options["stay"]:
                departures.withdraw(tenant=tenant, moment=moment)
                return Answer({"tenant": tenant.slug, "leaves_on": None}, f"{tenant.slug} stays.")
            try:
                day = parse_day(options["day"])
            except ValueError as error:
                raise BadInputError(f"DAY: {error}") from None
            row = departures.ask_to_leave(
                tenant=tenant, leaves_on=day, reason=options["reason"], by="ask_to_leave", moment=moment
            )
        return Answer(departure_data(row), departure_line(row))
