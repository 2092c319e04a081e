"""Tables for everyone, in the seller or at the top, and for one tenant: `approval_limits`, `dunning` and `close`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

from billing.invoicing import close_schedules
from billing.invoicing.close_schedules import ScheduleError
from billing.models import ApprovalLimit, ApprovalMetric, CloseSchedule
from billing.models.closes import LAST_DAY
from billing.receivables import dunning_policies
from billing.rules.dunning_defaults import LONGEST
from billing.rules.money import is_currency
from portal.config_file.entries import Entry, Rule, key
from portal.config_file.toml_table import Table
from portal.config_file.toml_values import WrongValue, decimal
from portal.core.tenants.models import Tenant

LARGEST_BOUND = Decimal(10**15)
MOST_LINES = 10**9
MOST_DAYS = 10  # reminders, or retries
BY_HAND = 0
DAYS = ("preview_day", "issue_day")


def _bound(limit: Decimal) -> None:
    if not 0 <= limit <= LARGEST_BOUND or -int(limit.as_tuple().exponent) > 3:
        raise ValueError("it is from 0, which is no bound, with at most three decimals.")


def _totals(table: Table, name: str) -> dict[str, Decimal]:
    """By currency."""
    within, limits = table.table(name), {}
    for code in within.data:
        limit = within.value(code, partial(decimal, check=_bound))
        if not is_currency(code):
            within.wrong(code, "is no currency; write its code of ISO 4217, such as USD or EUR.")
        elif limit is not None:
            limits[code] = limit
    return limits


class ApprovalEntry(Entry, frozen=True, kw_only=True):
    """Bounds above which an invoice waits for approval; 0 for none."""

    times_usual: Annotated[Decimal, Rule(check=_bound)] | None = None
    lines: Annotated[int, Rule(lowest=0, highest=MOST_LINES)] | None = None
    totals: Annotated[Mapping[str, Decimal], Rule(read=_totals)] = key(name="total", default_factory=dict)

    def write(self, tenant: Tenant | None) -> None:
        """Set the bounds of the tenant, or of everyone; applied again, nothing changes."""
        limits: dict[tuple[ApprovalMetric, str], Decimal | int | None] = {
            (ApprovalMetric.USUAL, ""): self.times_usual,
            (ApprovalMetric.LINES, ""): self.lines,
            **{(ApprovalMetric.TOTAL, code): limit for code, limit in self.totals.items()},
        }
        for (measure, currency), limit in limits.items():
            bound: dict[str, Any] = {"tenant": tenant, "metric": measure, "currency": currency}
            if limit is not None and not ApprovalLimit.objects.filter(**bound, limit=limit).exists():
                ApprovalLimit.objects.update_or_create(**bound, defaults={"limit": limit})


def _days(days: Any) -> list[int]:
    correct = isinstance(days, list) and len(days) <= MOST_DAYS
    if not correct or any(type(day) is not int or not 1 <= day <= LONGEST for day in days):
        raise WrongValue(
            f"has to be a list of at most {MOST_DAYS} whole numbers from 1 to {LONGEST}, such as [3, 10]."
        )
    return list(days)


class DunningEntry(Entry, frozen=True, kw_only=True):
    """One version of the policy, by its columns."""

    since: Annotated[date, Rule(missing="; write the day from which on invoices that are due go by it.")] = (
        key(name="from")
    )
    emails: bool | None = None
    receipts: bool | None = None
    payment_links: bool | None = None
    retries: Annotated[list[int], Rule(value=_days)] | None = None
    reminders: Annotated[list[int], Rule(value=_days)] | None = None
    past_due: Annotated[int, Rule(lowest=1, highest=LONGEST)] | None = None
    suspend: Annotated[int, Rule(lowest=0, highest=LONGEST)] | None = None
    announce: Annotated[int, Rule(lowest=0, highest=LONGEST)] | None = None
    write_off: Annotated[int, Rule(lowest=0, highest=LONGEST)] | None = None

    def write(self, tenant: Tenant | None) -> None:
        """Have the version of that day say it; applied again, nothing changes. Raises PolicyError."""
        dunning_policies.set_policy(tenant=tenant, **self.columns())


class CloseEntry(Entry, frozen=True, kw_only=True):
    """Closing by itself; a day of 0: by hand."""

    preview_day: Annotated[int, Rule(lowest=BY_HAND, highest=LAST_DAY)] | None = None
    issue_day: Annotated[int, Rule(lowest=BY_HAND, highest=LAST_DAY)] | None = None
    since: date | None = None

    def write(self, tenant: Tenant | None) -> None:
        """Set the schedule of the tenant, or of everyone; what is not mentioned stays. Raises ScheduleError."""
        values: dict[str, Any] = {
            name: None if value == BY_HAND else value for name, value in self.columns().items()
        }
        if not values:
            return
        row = CloseSchedule.objects.filter(tenant=tenant).first()
        if row is None and "since" not in values:
            raise ScheduleError(
                "since is missing in close; periods that end on that day or later close by themselves."
            )
        stored = {name: getattr(row, name) for name in (*DAYS, "since")} if row else dict.fromkeys(DAYS)
        close_schedules.set_schedule(tenant=tenant, **{**stored, **values})


class PolicyEntries(Entry, frozen=True, kw_only=True):
    """Those of the seller, which are everyone's, or of a tenant."""

    approval_limits: ApprovalEntry | None = None
    dunning: DunningEntry | None = None

    def write_policies(self, tenant: Tenant | None) -> None:
        for entry in (self.approval_limits, self.dunning):
            if entry is not None:
                entry.write(tenant)
