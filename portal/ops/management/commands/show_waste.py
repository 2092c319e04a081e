"""`show_waste`: rules on jobs that do not use their GPUs, what they found, and what ending them saved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import CommandParser

from billing.models import WasteRule
from billing.waste import rules, savings
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.ops.waste import finding_data, finding_line, rule_data, rule_line, saving_data


class Command(OperatorCommand):
    help = "List waste rules, the idle jobs that they found, and what ending them saved or would have saved."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", help="the tenant's slug; default: all")
        parser.add_argument("--days", type=int, default=savings.SPAN.days, help="how far back; default: 30")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"]) if options["tenant"] else None
        moment = datetime.now(UTC).replace(microsecond=0)
        since = moment - timedelta(days=options["days"])
        listed = list(rules.list_rules())
        names = dict(WasteRule.objects.values_list("pk", "name"))
        findings = savings.list_findings(since=since, tenant=tenant)
        saved = [
            saving_data(one, names) for one in savings.load_savings(moment=moment, since=since, tenant=tenant)
        ]
        lines = [
            *(rule_line(row) for row in listed),
            *(_saved_line(one) for one in saved),
            *(finding_line(row) for row in findings),
        ]
        data = {
            "rules": [rule_data(row) for row in listed],
            "savings": saved,
            "findings": [finding_data(row, moment=moment) for row in findings],
        }
        return Answer(data, "\n".join(lines) or "There are no waste rules: `set_waste_rule` makes one.")


def _saved_line(one: dict[str, Any]) -> str:
    def text(money: dict[str, str] | None) -> str:
        return f"{money['amount']} {money['currency']}" if money else "no price"

    return (
        f"{one['rule']}, {one['state']}: {one['jobs']} jobs, {one['idle_gpu_hours']} idle GPU-hours "
        f"({text(one['idle_cost'])}), estimated saving {one['saved_gpu_hours']} GPU-hours ({text(one['saved_cost'])})"
    )
