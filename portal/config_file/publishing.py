"""Publishing a version of a plan that was written on a page: by the rules, and in the sentences, of a file."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.db import transaction

from billing.catalog import plans
from billing.catalog.plans import PlanError
from billing.models import Plan, PlanVersion
from portal.config_file.apply import write_plans
from portal.config_file.schema import ConfigError, PlanEntry, parse
from portal.core.outbox import outbox


@dataclass(frozen=True, slots=True)
class Published:
    version: PlanVersion
    tenants: int  # whose usage is rated again


def one_plan(text: str) -> PlanEntry:
    """The one version that the text says. ConfigError for anything else."""
    file = parse(text)
    if replace(file, plans=[]) != parse("") or len(file.plans) != 1:
        raise ConfigError("Write one [[plan]] here, with its prices, and nothing else.")
    (entry,) = file.plans
    if not entry.said_from:
        raise ConfigError(f"{entry.table.name}: from is missing; write the day on which this version begins.")
    return entry


@transaction.atomic
def publish(text: str) -> Published:
    """Have the plan say this from its day on, and whoever was on it be rated again by a worker.

    A version that is in use stays as it is, and is refused; one that is not is replaced. Published again, nothing
    changes but its history. Raises ConfigError, having changed nothing.
    """
    entry = one_plan(text)
    plan = Plan.objects.select_for_update().filter(name=entry.name).first()
    before = plan.versions.filter(effective_from=entry.since).first() if plan else None
    try:
        if before is not None:
            _refuse_used(before)
            plans.delete_version(version=before)
    except PlanError as error:
        raise ConfigError(str(error)) from error
    write_plans([entry])
    version = PlanVersion.objects.select_related("plan").get(
        plan__name=entry.name, effective_from=entry.since
    )
    tenants = list(plans.subscribers(version.plan).values_list("pk", flat=True))
    if tenants:
        outbox.add("billing.tasks.rate_tenants", tenant_ids=tenants)
    return Published(version, len(tenants))


def _refuse_used(version: PlanVersion) -> None:
    if plans.billed(version):
        raise ConfigError(
            f"Plan {version} is in use, so it stays as it is: publish the draft with a later `from`."
        )
