"""What stories of billing ask again and again: close a month, read an invoice as the tenant does, prove it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Sum

from billing.invoicing import invoice_drafts, month_close, numbering, statements
from billing.invoicing.invoice_drafts import PeriodCharges
from billing.invoicing.month_close import TenantClose
from billing.models import Invoice, InvoiceLine, RatedUsage, Seller, Verdict
from billing.proof import checks
from billing.proof.sums import PARTS
from billing.receivables import settlement
from billing.rules.money import Money
from billing.rules.period import parse_month
from portal.core.tenants.models import Tenant
from tests import builders

HOUR = 3600

Seconds = Fraction | int
"""Exact; most are whole, and stories write them so."""


def close(
    month: str,
    *tenants: Tenant,
    on: str | None = None,
    accept: str = "",
    preview: bool = False,
    apart: bool = False,
    now: str | None = None,
) -> list[TenantClose]:
    """Close the month for these tenants, or for all; on the 3rd of the month after it unless said otherwise.

    They are closed together, or the story fails: a close hides what fails together and goes well one by one.
    It is dated back, from when everything in the tests has happened unless `now` is said.
    `apart`: one of them has trouble of its own, so that each is closed alone.
    """
    if not Seller.objects.exists():
        builders.a_seller()
    year, number = parse_month(month)
    after = datetime(year + number // 12, number % 12 + 1, 3)
    with _logged(month_close.APART) as events:
        outcomes = list(
            month_close.close_month(
                tenants=tenants or Tenant.objects.order_by("slug"),
                year=year,
                month=number,
                moment=builders.at(on or str(after)),
                accept_incomplete=accept,
                preview=preview,
                now=builders.at(now) if now else builders.LATER,
            )
        )
    assert bool(events) == apart, f"closed apart: {events}"
    return outcomes


@contextmanager
def _logged(event: str) -> Iterator[list[object]]:
    """Of each time that this was logged by the close, what came with it."""
    events: list[object] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(record.msg, dict) and record.msg.get("event") == event:
                events.append((record.msg["tenants"], sys.exc_info()[1]))

    logger, handler = logging.getLogger("billing.invoicing.month_close"), Recorder()
    logger.addHandler(handler)
    try:
        yield events
    finally:
        logger.removeHandler(handler)


def closed(
    month: str, tenant: Tenant, *, on: str | None = None, accept: str = "", now: str | None = None
) -> TenantClose:
    """What became of one tenant's close."""
    (outcome,) = close(month, tenant, on=on, accept=accept, now=now)
    return outcome


def invoice_of(tenant: Tenant, month: str) -> Invoice:
    """The tenant's issued invoice for the period that starts in that month: no correction, no credit note."""
    for invoice in Invoice.objects.issued().of_periods().filter(tenant=tenant):
        start = invoice.period_start.astimezone(ZoneInfo(invoice.timezone))
        if f"{start:%Y-%m}" == month:
            return invoice
    raise AssertionError(f"{tenant} has no invoice for {month}.")


@transaction.atomic
def draft(tenant: Tenant, month: str) -> Invoice:
    """What a close of the month writes before it numbers it; one that waits for approval stays like that."""
    tenant = numbering.lock(tenant)
    period = tenant.periods.get(start=builders.at(month + "-01"))
    due = statements.make_statement(tenant=tenant, period=period)
    (bill,) = invoice_drafts.prepare_drafts([PeriodCharges(tenant, period, due, None, {})])
    return invoice_drafts.draft_invoices([bill])[0]


@transaction.atomic
def issue(invoice: Invoice, *, on: date) -> None:
    numbering.issue_invoices([(numbering.lock(invoice.tenant), invoice, on)])


def pay(invoice: Invoice, amount: str) -> None:
    settlement.record_payment(
        invoice=invoice,
        amount=Money.of(amount, "USD"),
        received_on=date(2026, 5, 5),
        reference=f"transfer {amount}",
        recorded_by="Op",
    )


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
    """All identities hold; returns the GPU-seconds of all clusters by part.

    Once as operators prove, which recomputes what was written since the last time, and once in full.
    """
    proof, full = checks.prove(moment=builders.LATER), checks.prove(full=True)
    assert full.holds, [check for check in full.checks if check.broken] or full.sums
    assert proof == replace(full, recomputed=proof.recomputed)
    parts: dict[str, Seconds] = dict.fromkeys(PARTS, 0)
    for (_, resource), sums in proof.sums.items():
        if resource == "gpu":
            for part, value in sums.parts.items():
                parts[part] += value
    return parts


def hours(count: int) -> Seconds:
    return count * HOUR


def _printed(line: InvoiceLine) -> tuple[str, str, str, str]:
    service = line.service_period.start.astimezone(ZoneInfo(line.service_period.timezone))
    quantity = Fraction(int(line.seconds_num), line.seconds_den) / HOUR
    return (
        f"{service:%Y-%m}",
        line.project,
        str(quantity),
        Money.from_minor(line.amount, line.invoice.currency).text,
    )
