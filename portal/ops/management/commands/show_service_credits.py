"""`show_service_credits`: failure rules, the errors of GPUs that were read, and what was credited for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import CommandParser

from billing.service_credits import listing, rules
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.ops.service_credits import (
    credit_data,
    credit_line,
    error_data,
    error_line,
    rule_data,
    rule_line,
)


class Command(OperatorCommand):
    help = "List failure rules, the jobs that were credited by them, and the XIDs of GPUs that were read."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", help="the tenant's slug; default: all, with the XIDs of GPUs")
        parser.add_argument("--days", type=int, default=listing.SPAN.days, help="how far back; default: 30")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"]) if options["tenant"] else None
        since = datetime.now(UTC) - timedelta(days=options["days"])
        listed = list(rules.list_rules())
        credited = listing.list_credits(since=since, tenant=tenant)
        errors = listing.list_gpu_errors(since=since) if tenant is None else []
        lines = [*map(rule_line, listed), *map(credit_line, credited), *map(error_line, errors)]
        data = {
            "rules": [rule_data(row) for row in listed],
            "credits": [credit_data(row) for row in credited],
            "gpu_errors": [error_data(row) for row in errors],
        }
        return Answer(data, "\n".join(lines) or "There are no failure rules: `set_failure_rule` makes one.")
