"""`show_invoices`: what was issued, line by line."""

from __future__ import annotations

from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser
from django.db.models import Prefetch, Sum

from billing import collection
from billing.documents.format import hours_text, plain_price
from billing.models import Invoice, InvoiceLine
from billing.proof import seconds_text
from billing.rules.money import Money
from billing.rules.period import parse_month
from portal.ops.cli import Answer, BadInputError, OperatorCommand


class Command(OperatorCommand):
    help = "Show invoices with their lines."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG")
        parser.add_argument("--month", metavar="YYYY-MM", help="the month in which the billing period starts")

    def answer(self, **options: Any) -> Answer:
        today = datetime.now(UTC).date()
        invoices = [_invoice(invoice, today) for invoice in _chosen(options["tenant"], options["month"])]
        text = "\n\n".join(_text(invoice) for invoice in invoices) or "There are no invoices."
        return Answer({"invoices": invoices}, text)


def _chosen(tenant: str | None, month: str | None) -> list[Invoice]:
    lines = InvoiceLine.objects.select_related("service_period").order_by("position")
    invoices = (
        Invoice.objects.select_related("tenant")
        .prefetch_related(Prefetch("lines", lines))
        .annotate(received=Sum("payments__amount"))
        .order_by("period_start", "tenant__slug", "pk")
    )
    if tenant:
        invoices = invoices.filter(tenant__slug=tenant)
    if not month:
        return list(invoices)
    try:
        asked = parse_month(month)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    return [invoice for invoice in invoices if _month(invoice) == asked]


def _month(invoice: Invoice) -> tuple[int, int]:
    local = invoice.period_start.astimezone(ZoneInfo(invoice.timezone))
    return local.year, local.month


def _invoice(invoice: Invoice, today: date) -> dict[str, Any]:
    money = [
        Money.from_minor(minor, invoice.currency).text
        for minor in (invoice.subtotal, invoice.tax, invoice.total)
    ]
    stand = collection.balance(invoice=invoice, on=today, paid=invoice.received or 0)  # type: ignore[attr-defined]
    zone = ZoneInfo(invoice.timezone)
    return {
        "number": invoice.number,
        "tenant": invoice.tenant.slug,
        "period": {
            "start": invoice.period_start,
            "end": invoice.period_end,
            "month": invoice.period_start.astimezone(zone).strftime("%Y-%m"),
            "timezone": invoice.timezone,
        },
        "currency": invoice.currency,
        "status": invoice.state,
        "settlement": stand.settlement.value,
        "issued_on": invoice.issued_on,
        "due_on": invoice.due_on,
        "subtotal": money[0],
        "tax": money[1],
        "total": money[2],
        "due": stand.due.text,
        "lines": [_line(line, invoice) for line in invoice.lines.all()],
    }


def _line(line: InvoiceLine, invoice: Invoice) -> dict[str, Any]:
    seconds = Fraction(int(line.seconds_num), line.seconds_den)
    service = line.service_period
    return {
        "position": line.position,
        "project": line.project,
        "meter": line.meter,
        "description": line.description,
        "quantity": hours_text(seconds).replace(",", ""),
        "unit": line.unit,
        "resource_seconds": seconds_text(seconds),
        "unit_price": plain_price(line.unit_price, invoice.currency),
        "amount": Money.from_minor(line.amount, invoice.currency).text,
        "service_month": service.start.astimezone(ZoneInfo(service.timezone)).strftime("%Y-%m"),
        "correction": line.correction,
    }


def _text(invoice: dict[str, Any]) -> str:
    head = (
        f"{invoice['number'] or 'draft'}  {invoice['tenant']}  {invoice['period']['month']}  "
        f"{invoice['status']}, {invoice['settlement'].replace('_', ' ')}"
    )
    lines = [
        f"  {line['position']:>3}  {line['project']:<24} {line['description']:<32} "
        f"{line['quantity']:>18} {line['unit']:<10} × {line['unit_price']:>8} = {line['amount']:>14}"
        + (f"  (correction of {line['service_month']})" if line["correction"] else "")
        for line in invoice["lines"]
    ]
    foot = f"  subtotal {invoice['subtotal']}, tax {invoice['tax']}, total {invoice['total']} {invoice['currency']}"
    return "\n".join([head, *lines, foot])
