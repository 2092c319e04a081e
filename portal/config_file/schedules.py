"""What a configuration file says of closing by itself: `close` for everyone at the top, for one tenant below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from billing.invoicing import close_schedules
from billing.invoicing.close_schedules import ScheduleError
from billing.models import CloseSchedule
from billing.models.closes import LAST_DAY
from portal.config_file.toml_table import Table
from portal.core.tenants.models import Tenant

Days = Mapping[str, Any]
"""What the file mentions, by column; a day of None: by hand. Empty where there is no such table."""

BY_HAND = 0
DAYS = ("preview_day", "issue_day")


def read(table: Table) -> Days:
    """Of `close` at the top or in a tenant; mistakes go to the table's errors."""
    within = table.table("close")
    mentioned = {name: within.whole(name, lowest=BY_HAND, highest=LAST_DAY) for name in DAYS}
    days: dict[str, Any] = {name: day or None for name, day in mentioned.items() if day is not None}
    since = within.day("since")
    if since is not None:
        days["since"] = since
    within.done()
    return days


def write(*, tenant: Tenant | None, days: Days) -> None:
    """Set the schedule of the tenant, or of everyone; what is not mentioned stays. Applied again, nothing changes."""
    if not days:
        return
    row = CloseSchedule.objects.filter(tenant=tenant).first()
    if row is None and "since" not in days:
        raise ScheduleError(
            "since is missing in close; periods that end on that day or later close by themselves."
        )
    kept = {name: getattr(row, name) for name in (*DAYS, "since")} if row else dict.fromkeys(DAYS)
    close_schedules.set_schedule(tenant=tenant, **{**kept, **days})


def rows() -> Iterable[tuple[int, str, dict[str, str]]]:
    """Of each schedule its key, its name for people, and what it says."""
    for row in CloseSchedule.objects.select_related("tenant").order_by("pk"):
        days = {name: str(getattr(row, name) or "by hand") for name in DAYS}
        whose = row.tenant.slug if row.tenant else "everyone"
        yield row.pk, f"close schedule of {whose}", {**days, "since": str(row.since)}
