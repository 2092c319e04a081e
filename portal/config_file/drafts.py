"""Versions of plans before they are in force: tried on past usage, which keeps nothing of them, and published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from django.db import transaction

from billing.catalog import plans
from billing.catalog.plans import PlanError
from billing.models import Plan, PlanVersion
from portal.config_file.apply import write_plans
from portal.config_file.plan_entries import PlanEntry
from portal.config_file.schema import ConfigError, File, parse
from portal.core.outbox import outbox
from portal.excerpt import quoted
from portal.sentences import sentence


@dataclass(frozen=True, slots=True)
class Published:
    version: PlanVersion
    tenants: int  # whose usage is rated again


def draft_of(file: File, name: str) -> list[PlanEntry]:
    """All versions that the file has of the plan. ConfigError where it has none."""
    entries = [entry for entry in file.plans if entry.name == name]
    if not entries:
        names = ", ".join(sorted({entry.name for entry in file.plans})) or "none"
        raise ConfigError(f"The file has no plan {quoted(name)}; it has: {names}.")
    return entries


def plan_name(file: File, name: str) -> str:
    """The name of the plan that is meant: `name`, or the only one. ConfigError where several could be."""
    names = sorted({entry.name for entry in file.plans})
    if not name and len(names) > 1:
        raise ConfigError(f"The file has several plans: say with --plan which one, of {', '.join(names)}.")
    return name or (names[0] if names else "")


def start_by(entries: Sequence[PlanEntry], first: date) -> list[PlanEntry]:
    """The versions, moved back as they stand to each other, so that the first holds from that day.

    One that holds by then stays where it is.
    """
    back = max(timedelta(0), min(entry.begins for entry in entries) - first)
    return [entry.moved(back) for entry in entries]


def write(entries: Sequence[PlanEntry], name: str) -> None:
    """Have a plan of that name be as the versions say. ConfigError, with the name that people know it by, where not."""
    try:
        write_plans([entry.replaced(name=name) for entry in entries])
    except ConfigError as error:
        raise ConfigError(*(text.replace(name, entries[0].name) for text in error.sentences)) from error


def one_plan(text: str) -> PlanEntry:
    """The one version that the text says. ConfigError for anything else."""
    file = parse(text)
    if file.replaced(plans=[]) != parse("") or len(file.plans) != 1:
        raise ConfigError("Write one [[plan]] here, with its prices, and nothing else.")
    return dated(file.plans[0])


def dated(entry: PlanEntry) -> PlanEntry:
    """The entry, which has a first day of its own. ConfigError where it has none."""
    if entry.since is None:
        raise ConfigError(f"{entry.label}: from is missing; write the day on which this version begins.")
    return entry


@transaction.atomic
def publish_entry(entry: PlanEntry) -> Published:
    """Have the plan say this from its day on, and whoever was on it be rated again by a worker.

    A version that is in use stays as it is, and is refused; one that is not is replaced. Published again, nothing
    changes but its history. Raises ConfigError, having changed nothing.
    """
    plan = Plan.objects.select_for_update().filter(name=entry.name).first()
    before = plan.versions.filter(effective_from=entry.begins).first() if plan else None
    try:
        if before is not None:
            _refuse_used(before)
            plans.delete_version(version=before)
    except PlanError as error:
        raise ConfigError(sentence(error)) from error
    write_plans([entry])
    version = PlanVersion.objects.select_related("plan").get(
        plan__name=entry.name, effective_from=entry.begins
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
