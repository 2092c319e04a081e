"""What a configuration file says of bounds: what is issued without a look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from billing.models import ApprovalLimit, ApprovalMetric
from billing.rules.money import is_currency
from portal.config_file.toml_table import Table
from portal.core.tenants.models import Tenant

Limits = Mapping[tuple[ApprovalMetric, str], Decimal]
"""By measure and currency; 0 for no bound. What the file does not mention stays as it is."""

LARGEST = Decimal(10**15)
FEWEST_LINES, MOST_LINES = 0, 10**9


def read(table: Table) -> Limits:
    """Of `approval_limits` in the seller or a tenant; mistakes go to the table's errors. Empty where there is none."""
    within = table.table("approval_limits")
    found: dict[tuple[ApprovalMetric, str], Decimal] = {}
    times = _limit(within, "times_usual")
    if times is not None:
        found[ApprovalMetric.USUAL, ""] = times
    lines = within.whole("lines", lowest=FEWEST_LINES, highest=MOST_LINES)
    if lines is not None:
        found[ApprovalMetric.LINES, ""] = Decimal(lines)
    totals = within.table("total")
    for code in list(totals.data):
        limit = _limit(totals, code)
        if not is_currency(code):
            totals.wrong(code, "is no currency; write its code of ISO 4217, such as USD or EUR.")
        elif limit is not None:
            found[ApprovalMetric.TOTAL, code] = limit
    within.done()
    return found


def write(*, tenant: Tenant | None, limits: Limits) -> None:
    """Set the bounds of the tenant, or of everyone; applied again, nothing changes."""
    for (measure, currency), limit in limits.items():
        kept = ApprovalLimit.objects.filter(tenant=tenant, measure=measure, currency=currency).first()
        if kept is None:
            ApprovalLimit.objects.create(tenant=tenant, measure=measure, currency=currency, limit=limit)
        elif kept.limit != limit:
            kept.limit = limit
            kept.save()


def told() -> Iterable[tuple[int, str, dict[str, str]]]:
    """Of each bound its key, its name for people, and what it says."""
    for row in ApprovalLimit.objects.select_related("tenant").order_by("pk"):
        whose = row.tenant.slug if row.tenant else "everyone"
        name = f"approval limit of {whose}, {row.measure} {row.currency}".strip()
        yield row.pk, name, {"limit": f"{row.limit.normalize():f}" if row.limit else "none"}


def _limit(table: Table, key: str) -> Decimal | None:
    limit = table.decimal(key)
    if limit is None:
        return None
    if not 0 <= limit <= LARGEST or -int(limit.as_tuple().exponent) > 3:
        table.wrong(key, f"is {limit}; it is from 0, which is no bound, with at most three decimals.")
        return None
    return limit
