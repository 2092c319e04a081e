"""`change_plan SLUG [PLAN]`: what a tenant's owner does on *Change plan or leave*, to the plan."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser
from django.db import transaction

from billing.catalog.plans import PlanError
from billing.models import Plan
from billing.sign_up import plan_changes
from billing.sign_up.last_period import compare_last_period
from billing.sign_up.policy import SignUpError
from portal.core.audit import acting_as
from portal.core.tenants.scope import acting_scope
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.ops.plan_changes import choice_data, choice_text, last_period_data, last_period_text


class Command(OperatorCommand):
    help = (
        "Have a tenant be on another public plan from its next billing period on, or list what it may choose."
    )
    refusals: ClassVar[tuple[type[Exception], ...]] = (SignUpError, PlanError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="SLUG")
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument("plan", metavar="PLAN", nargs="?", help="without, the choices are listed")
        chosen.add_argument("--stay", action="store_true", help="take the planned change back")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="answer as if, with what the last period would have cost, and keep nothing",
        )

    def answer(self, **options: Any) -> Answer:
        tenant, moment = the_tenant(options["tenant"]), datetime.now(UTC).replace(microsecond=0)
        with transaction.atomic(), acting_as("change_plan"):
            if options["stay"]:
                plan_changes.withdraw_change(tenant=tenant, moment=moment)
            elif options["plan"]:
                plan_changes.change_plan(tenant=tenant, plan=options["plan"], moment=moment)
            choice = plan_changes.load_choice(tenant, moment=moment)
            transaction.set_rollback(options["dry_run"])
        data, text = choice_data(tenant, choice), choice_text(tenant, choice)
        if options["dry_run"] and options["plan"]:
            with acting_scope(tenant):
                chosen = Plan.objects.get(name=options["plan"])
                last = compare_last_period(tenant=tenant, plan=chosen, moment=moment)
            data["last_period"] = last_period_data(last)
            text += f"\n{last_period_text(last)}"
        return Answer(data, text)
