"""`show_limits`: what tenants may hold at once, and how much of it is held now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from billing.limits import limits, status
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.limits import limit_data, limit_lines
from portal.ops.lookups import the_tenant


class Command(OperatorCommand):
    help = "List limits of what is held at once, with what is held of them now."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", help="the tenant's slug; default: all")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"]) if options["tenant"] else None
        statuses = status.load_statuses(list(limits.list_limits(tenant)), moment=datetime.now(UTC))
        lines = [line for one in statuses for line in limit_lines(one)]
        nothing = "There are no limits: `set_limit` makes one."
        return Answer({"limits": [limit_data(one) for one in statuses]}, "\n".join(lines) or nothing)
