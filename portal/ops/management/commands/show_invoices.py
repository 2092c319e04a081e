"""`show_invoices`: what was issued, line by line."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser
from django.db.models import Prefetch

from billing.catalog import line_descriptions
from billing.models import Invoice, InvoiceLine, InvoiceTax
from billing.proof.sums import seconds_text
from billing.receivables import settlement
from billing.rules.formatting import hours_text, plain_price
from billing.rules.money import Money
from billing.rules.period import parse_month
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.sentences import sentence


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
    lines = InvoiceLine.objects.select_related("service_period", "original__invoice").order_by("position")
    taxes = InvoiceTax.objects.order_by("-rate", "category")
    invoices = (
        Invoice.objects.with_balance()
        .select_related("tenant", "original", "replaces", "voiding")
        .prefetch_related(Prefetch("lines", lines), Prefetch("taxes", taxes))
        .order_by("period_start", "tenant__slug", "pk")
    )
    if tenant:
        invoices = invoices.filter(tenant__slug=tenant)
    if not month:
        return list(invoices)
    try:
        year_month = parse_month(month)
    except ValueError as error:
        raise BadInputError(sentence(error)) from error
    return [invoice for invoice in invoices if _month(invoice) == year_month]


def _month(invoice: Invoice) -> tuple[int, int]:
    local = invoice.period_start.astimezone(ZoneInfo(invoice.timezone))
    return local.year, local.month


def _invoice(invoice: Invoice, today: date) -> dict[str, Any]:
    money = [
        Money.from_minor(minor, invoice.currency).text
        for minor in (invoice.subtotal, invoice.tax, invoice.total)
    ]
    stand = settlement.compute_balance(invoice=invoice, on=today)
    voiding = getattr(invoice, "voiding", None)
    zone = ZoneInfo(invoice.timezone)
    return {
        "number": invoice.number,
        "kind": invoice.kind,
        "original": invoice.original.number if invoice.original else None,
        "replaces": invoice.replaces.number if invoice.replaces else None,
        "reason": (voiding.reason if voiding else invoice.reason) or None,
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
        "taxes": [
            {
                "category": row.category,
                "rate": f"{row.rate.normalize():f}",
                "net": Money.from_minor(row.net, invoice.currency).text,
                "tax": Money.from_minor(row.tax, invoice.currency).text,
                "reason": row.reason,
            }
            for row in invoice.taxes.all()
        ],
        "total": money[2],
        "from_wallet": stand.from_wallet.text,
        "paid": stand.paid.text,
        "credited": stand.credited.text,
        "written_off": stand.written_off.text,
        "due": stand.due.text,
        "lines": [_line(line, invoice) for line in invoice.lines.all()],
    }


def _line(line: InvoiceLine, invoice: Invoice) -> dict[str, Any]:
    seconds = Fraction(int(line.seconds_num), line.seconds_den)
    service = line.service_period
    return {
        "position": line.position,
        "kind": line.kind,
        "project": line.project,
        "meter": line.meter,
        "description": line.description,
        "detail": line_descriptions.detail(line, invoice.currency),
        "quantity": hours_text(seconds).replace(",", "") if line.unit else "",
        "unit": line.unit,
        "resource_seconds": seconds_text(seconds),
        "unit_price": plain_price(line.unit_price, invoice.currency),
        "amount": Money.from_minor(line.amount, invoice.currency).text,
        "service_month": service.start.astimezone(ZoneInfo(service.timezone)).strftime("%Y-%m"),
        "correction": line.corrects,
        "first_charge": line.first_charge,
        "tax_rate": f"{line.tax_rate.normalize():f}",
        "tax_category": line.tax_category,
        "original": {"number": line.original.invoice.number, "position": line.original.position}
        if line.original
        else None,
    }


def _at(unit_price: str) -> str:
    return f"× {unit_price:>8}" if unit_price else ""


def _text(invoice: dict[str, Any]) -> str:
    head = (
        f"{invoice['number'] or 'draft'}  {invoice['tenant']}  {invoice['period']['month']}  "
        f"{invoice['status']}, {invoice['settlement'].replace('_', ' ')}"
        + (f", credits {invoice['original']}" if invoice["original"] else "")
        + (f", replaces {invoice['replaces']}" if invoice["replaces"] else "")
        + (f": {invoice['reason']}" if invoice["reason"] else "")
    )
    lines = [
        f"  {line['position']:>3}  {line['project']:<24} {line['description']:<32} "
        f"{line['quantity']:>18} {line['unit']:<10} {_at(line['unit_price']):>10} = {line['amount']:>14}"
        + (f"  (correction of {line['service_month']})" if line["correction"] else "")
        + (f"\n       {line['detail']}" if line["detail"] else "")
        for line in invoice["lines"]
    ]
    foot = f"  subtotal {invoice['subtotal']}, tax {invoice['tax']}, total {invoice['total']} {invoice['currency']}"
    if Decimal(invoice["from_wallet"]):
        foot += f", {invoice['from_wallet']} paid from wallet, {invoice['due']} due"
    return "\n".join([head, *lines, foot])
