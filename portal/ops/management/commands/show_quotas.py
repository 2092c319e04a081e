"""`show_quotas`: the quotas in force, and how much of each is used now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from billing.quotas import quotas, status
from billing.rules.quotas import QuotaState
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.ops.quotas import quota_data, quota_line


class Command(OperatorCommand):
    help = "List quotas with what is used of them now."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", help="the tenant's slug; default: all")
        parser.add_argument(
            "--state",
            choices=[state.value for state in QuotaState],
            action="append",
            help="only these; repeatable",
        )

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"]) if options["tenant"] else None
        rows = list(quotas.list_quotas(tenant))
        statuses = status.load_statuses(rows, moment=datetime.now(UTC).replace(microsecond=0))
        chosen = [one for one in statuses if not options["state"] or one.state in options["state"]]
        lines = [quota_line(one) for one in chosen]
        nothing = "No quota is so." if rows else "There are no quotas: `set_quota` makes one."
        return Answer({"quotas": [quota_data(one) for one in chosen]}, "\n".join(lines) or nothing)
