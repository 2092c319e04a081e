"""What a plan in the file says beside its prices: allowances, fees, a commitment, discounts.

Each for all, or for one tenant alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from billing.catalog import plan_versions
from billing.catalog.plans import PlanError
from billing.models import PlanVersion
from portal.config_file.toml_table import Table
from portal.core.tenants.models import Tenant
from portal.excerpt import excerpt, quoted


@dataclass(frozen=True, slots=True)
class TermsEntry:
    """By what `billing.catalog.plan_versions` takes, without the version; a tenant is told by its slug."""

    allowances: list[dict[str, Any]]
    fees: list[dict[str, Any]]
    commitments: list[dict[str, Any]]
    discounts: list[dict[str, Any]]


def read(table: Table, since: date | None) -> TermsEntry:
    """The terms of a plan's table; `since` is its first day, from which discounts hold that name none."""
    return TermsEntry(
        [_allowance(each, since) for each in table.tables("allowance", _names(table, "allowance"))],
        [_fee(each, since) for each in table.tables("fee", _names(table, "fee"))],
        [_commitment(each, since) for each in _commitments(table)],
        [_discount(each, since) for each in table.tables("discount", _names(table, "discount"))],
    )


def write(version: PlanVersion, entry: TermsEntry) -> None:
    """Have the version say them. PlanError where it may not any more."""
    tenants = _tenants(entry)
    for allowance in _plans_own_first(entry.allowances):
        plan_versions.set_allowance(version=version, **allowance | tenants[allowance["tenant"]])
    for fee in _plans_own_first(entry.fees):
        plan_versions.set_fee(version=version, **fee | tenants[fee["tenant"]])
    for commitment in _plans_own_first(entry.commitments):
        plan_versions.set_commitment(version=version, **commitment | tenants[commitment["tenant"]])
    for discount in _plans_own_first(entry.discounts):
        plan_versions.set_discount(version=version, **discount | tenants[discount["tenant"]])


def _plans_own_first(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is for one tenant alone stands in the place of what the plan says, and ends before what follows it."""
    own = [each for each in said if each["tenant"] is not None]
    return [each for each in said if each["tenant"] is None] + sorted(
        own, key=lambda each: each["valid_from"] or date.min
    )


def _tenants(entry: TermsEntry) -> Mapping[str | None, dict[str, Tenant | None]]:
    every = [*entry.allowances, *entry.fees, *entry.commitments, *entry.discounts]
    slugs = {each["tenant"] for each in every} - {None}
    known = {tenant.slug: tenant for tenant in Tenant.objects.filter(slug__in=slugs)}
    for slug in sorted(slugs - known.keys()):
        raise PlanError(f"tenant is {quoted(slug)}, which neither the file nor the database has.")
    found: dict[str | None, dict[str, Tenant | None]] = {None: {"tenant": None}}
    return found | {slug: {"tenant": tenant} for slug, tenant in known.items()}


def _commitments(table: Table) -> list[Table]:
    """One table, or a list of them: the plan's own, and those of tenants."""
    if not isinstance(table.data.get("commitment"), list):
        return [table.table("commitment")] if table.given("commitment") else []
    return table.tables("commitment", lambda place, _: f"{table.name}, commitment {place}")


def _names(table: Table, noun: str) -> Any:
    def name(place: int, data: Mapping[str, Any]) -> str:
        known = data.get("name")
        return (
            f'{table.name}, {noun} "{excerpt(known)}"'
            if isinstance(known, str)
            else f"{table.name}, {noun} {place}"
        )

    return name


def _allowance(table: Table, since: date | None) -> dict[str, Any]:
    said = {
        "name": table.text("name", required=True, longest=100),
        "hours": table.decimal("hours", required=True) or Decimal(0),
        "rollover": table.flag("rollover"),
        **_alone(table, since),
    }
    table.done()
    return said


def _fee(table: Table, since: date | None) -> dict[str, Any]:
    said = {
        "name": table.text("name", required=True, longest=100),
        "amount": table.decimal("amount", required=True) or Decimal(0),
        "in_advance": table.flag("in_advance"),
        **_alone(table, since),
    }
    table.done()
    return said


def _commitment(table: Table, since: date | None) -> dict[str, Any]:
    said = {
        "amount": table.decimal("amount", required=True) or Decimal(0),
        "factor": table.decimal("overage_factor"),
        **_alone(table, since),
    }
    table.done()
    return said


def _discount(table: Table, since: date | None) -> dict[str, Any]:
    said = {
        "name": table.text("name", required=True, longest=100),
        "percent": table.decimal("percent"),
        "amount": table.decimal("amount"),
        "tenant": table.text("tenant", longest=50) or None,
        "valid_from": table.day("from") or since,
        "valid_until": table.day("until"),
    }
    if said["valid_from"] is None:
        table.wrong("from", "is missing; write from = 2017-01-01, for the discount or for its plan.")
    table.done()
    return said


def _alone(table: Table, since: date | None) -> dict[str, Any]:
    """For which tenant alone, and when; what is for all holds as long as its version."""
    tenant = table.text("tenant", longest=50) or None
    first, until = table.day("from"), table.day("until")
    if tenant is None:
        for key in ("from", "until"):
            if key in table.data:
                table.wrong(
                    key, "goes with `tenant`: what is for all holds as long as this version of the plan."
                )
        return {"tenant": None, "valid_from": None, "valid_until": None}
    if first is None and since is None:
        table.wrong("from", "is missing; write from = 2017-01-01, the day from which it is the tenant's own.")
    return {"tenant": tenant, "valid_from": first or since, "valid_until": until}
