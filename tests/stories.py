"""What stories of billing ask again and again: close a month, read an invoice as the tenant does, prove it."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.db.models import Sum

from billing import closing, proof
from billing.closing import Closed
from billing.models import Invoice, InvoiceLine, InvoiceState, RatedUsage, Verdict
from billing.rules.money import Money
from billing.rules.period import parse_month
from portal.tenants.models import Tenant
from tests import builders

HOUR = 3600

Seconds = Fraction | int
"""Exact; most are whole, and stories write them so."""


def close(
    month: str, *tenants: Tenant, on: str | None = None, accept: str = "", rehearse: bool = False
) -> list[Closed]:
    """Close the month for these tenants, or for all; on the 3rd of the month after it unless said otherwise."""
    year, number = parse_month(month)
    after = datetime(year + number // 12, number % 12 + 1, 3)
    return list(
        closing.close(
            tenants=tenants or Tenant.objects.order_by("slug"),
            year=year,
            month=number,
            moment=builders.at(on or str(after)),
            accept_incomplete=accept,
            rehearse=rehearse,
        )
    )


def closed(month: str, tenant: Tenant, *, on: str | None = None, accept: str = "") -> Closed:
    """What became of one tenant's close."""
    (outcome,) = close(month, tenant, on=on, accept=accept)
    return outcome


def invoice_of(tenant: Tenant, month: str) -> Invoice:
    """The tenant's issued invoice for the period that starts in that month."""
    for invoice in Invoice.objects.filter(tenant=tenant, state=InvoiceState.ISSUED):
        start = invoice.period_start.astimezone(ZoneInfo(invoice.timezone))
        if f"{start:%Y-%m}" == month:
            return invoice
    raise AssertionError(f"{tenant} has no invoice for {month}.")


def printed(invoice: Invoice) -> list[tuple[str, str, str, str]]:
    """Each line as (service month, project, hours, amount)."""
    return [_printed(line) for line in lines_of(invoice)]


def lines_of(invoice: Invoice) -> list[InvoiceLine]:
    return list(invoice.lines.select_related("service_period", "invoice").order_by("position"))


def total(invoice: Invoice) -> str:
    """`"192.00"`"""
    return Money.from_minor(invoice.total, invoice.currency).text


def seconds(tenant: Tenant, resource: str = "gpu", verdict: str = Verdict.CHARGED) -> Seconds:
    """The resource-seconds that rating keeps for the tenant, billed or not."""
    rows = (
        RatedUsage.objects.filter(tenant_id=tenant.pk, resource=resource, verdict=verdict)
        .values("share_num", "share_den")
        .annotate(sum=Sum("units"))
    )
    return sum((Fraction(int(row["sum"]) * row["share_num"], row["share_den"]) for row in rows), Fraction(0))


def prove() -> dict[str, Seconds]:
    """All identities hold; returns the GPU-seconds of all clusters by part."""
    found = proof.prove()
    assert found.holds, [check for check in found.checks if check.broken] or found.sums
    parts: dict[str, Seconds] = dict.fromkeys(proof.PARTS, 0)
    for (_, resource), sums in found.sums.items():
        if resource == "gpu":
            for part, value in sums.parts.items():
                parts[part] += value
    return parts


def hours(count: int) -> Seconds:
    return count * HOUR


def later(text: str, seconds: int) -> str:
    """The moment so many seconds after `text`, written as builders take it."""
    return f"{builders.at(text) + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}"


def _printed(line: InvoiceLine) -> tuple[str, str, str, str]:
    service = line.service_period.start.astimezone(ZoneInfo(line.service_period.timezone))
    quantity = Fraction(int(line.seconds_num), line.seconds_den) / HOUR
    return (
        f"{service:%Y-%m}",
        line.project,
        str(quantity),
        Money.from_minor(line.amount, line.invoice.currency).text,
    )
