"""The phases of a tenant's subscription in a file: a trial, then the standard plan; a downgrade that is to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

from billing.catalog import subscriptions
from billing.catalog.plans import PlanError
from billing.models import Plan
from portal.config_file.toml_table import Moment, Table
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import midnight

LONGEST = 36_500  # days


@dataclass(frozen=True, slots=True)
class Phase:
    plan: str
    since: Moment


def read(tables: Sequence[Table]) -> list[Phase]:
    """The [[tenant.phase]] of one tenant, in order; mistakes go to the tables' errors."""
    found: list[Phase] = []
    ends: date | None = None
    for table in tables:
        plan, since = table.text("plan", required=True), table.moment("from")
        days = table.whole("days", lowest=1, highest=LONGEST)
        table.done()
        if since is None and "from" not in table.data:
            since = ends
            if ends is None:
                table.wrong("from", "is missing; write it, or `days` in the phase before.")
        elif ends is not None:
            table.wrong("from", "is said, and the phase before has `days`; leave one of them out.")
        if days is not None and isinstance(since, datetime):
            table.wrong("days", "counts from a day; write `from` as a date.")
        ends = since + timedelta(days=days) if days is not None and type(since) is date else None
        if plan and since is not None:
            found.append(Phase(plan, since))
    if ends is not None:
        tables[-1].wrong("days", "does not go with the last phase, which holds until another follows.")
    return found


def write(*, tenant: Tenant, phases: Sequence[Phase]) -> None:
    """Have the tenant be on these plans from the first phase on. Raises PlanError where it cannot be."""
    known = {plan.name: plan for plan in Plan.objects.filter(name__in={phase.plan for phase in phases})}
    asked = []
    for phase in phases:
        if phase.plan not in known:
            raise PlanError(f"plan is {quoted(phase.plan)}, which neither the file nor the database has.")
        since = phase.since if isinstance(phase.since, datetime) else midnight(phase.since, tenant.zone)
        asked.append((known[phase.plan], since))
    for (_, before), (plan, since) in pairwise(asked):
        if since <= before:
            raise PlanError(f"The phase of plan {plan} would begin before the one that it follows.")
    subscriptions.set_phases(tenant=tenant, phases=asked)
