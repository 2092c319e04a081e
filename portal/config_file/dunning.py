"""What a configuration file says of dunning: for everyone below the seller, for one tenant below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from billing.models import DunningPolicy
from billing.receivables import dunning_policies
from billing.rules.dunning import LONGEST, Policy
from portal.config_file.toml_table import Table
from portal.core.tenants.models import Tenant

Said = Mapping[str, Any]
"""What the file mentions of one version, by column; empty where there is none."""

MOST = 10  # reminders, or tries
COLUMNS = tuple(Policy.__dataclass_fields__)


def read(table: Table) -> Said:
    """Of `dunning` in the seller or a tenant; mistakes go to the table's errors."""
    if "dunning" not in table.data:
        table.table("dunning").done()
        return {}
    within = table.table("dunning")
    since = within.day("from")
    if "from" not in within.data:
        within.wrong("from", "is missing; write the day from which on invoices that are due go by it.")
    said: dict[str, Any] = {name: within.flag(name) for name in ("emails", "receipts")}
    said |= {name: _days(within, name) for name in ("retries", "reminders")}
    for name, lowest in (("past_due", 1), ("suspend", 0), ("announce", 0), ("write_off", 0)):
        said[name] = within.whole(name, lowest=lowest, highest=LONGEST)
    within.done()
    known = {name: value for name, value in said.items() if value is not None}
    return {"since": since} | known if since is not None else {}


def write(*, tenant: Tenant | None, said: Said) -> None:
    """Have the version of that day say it; applied again, nothing changes. Raises PolicyError."""
    if said:
        dunning_policies.set_policy(tenant=tenant, **said)


def told() -> Iterable[tuple[int, str, dict[str, str]]]:
    """Of each version its key, its name for people, and what it says."""
    for row in DunningPolicy.objects.select_related("tenant").order_by("pk"):
        yield (
            row.pk,
            f"dunning of {row.tenant.slug if row.tenant else 'everyone'} from {row.since}",
            {name: _said(getattr(row, name)) for name in COLUMNS},
        )


def _said(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _days(table: Table, key: str) -> list[int] | None:
    if not table.given(key):
        return None
    days = table.data[key]
    fine = isinstance(days, list) and len(days) <= MOST
    if not fine or any(type(day) is not int or not 1 <= day <= LONGEST for day in days):
        table.wrong(
            key, f"has to be a list of at most {MOST} whole numbers from 1 to {LONGEST}, such as [3, 10]."
        )
        return None
    return list(days)
