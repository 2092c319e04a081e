"""`show_sign_ups`: who has signed up and waits, and who asked to leave."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from billing.models import SignUp
from billing.sign_up import departures
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.sign_ups import sign_up_data, sign_up_line


class Command(OperatorCommand):
    help = "List the sign-ups that wait, and tenants that asked to leave."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--all", action="store_true", help="decided ones, too")

    def answer(self, **options: Any) -> Answer:
        rows = SignUp.objects.select_related("tenant", "plan").order_by("asked_at", "pk")
        listed = list(rows if options["all"] else rows.waiting())
        leaving = list(departures.open_departures())
        lines = [sign_up_line(row) for row in listed]
        lines += [f"{row.tenant.slug} asked to leave on {row.leaves_on}" for row in leaving]
        data = {
            "sign_ups": [sign_up_data(row) for row in listed],
            "departures": [
                {"tenant": row.tenant.slug, "leaves_on": row.leaves_on, "reason": row.reason}
                for row in leaving
            ],
        }
        return Answer(data, "\n".join(lines) or "Nobody waits.")
