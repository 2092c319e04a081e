"""From an issued invoice's frozen rows to the document that shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from billing.documents.format import hours_text, money_text, price_text
from billing.documents.invoice import DocumentLine, InvoiceDocument, Party
from billing.models import Invoice, InvoiceLine
from billing.rules.money import Money
from billing.rules.period import Period, label


def document_of(invoice: Invoice) -> InvoiceDocument:
    """What the invoice's PDF shows; only frozen fields go in, so it is the same document for ever.

    Two queries. ValueError for a draft: it has neither number nor date.
    """
    if invoice.number is None or invoice.issued_on is None:
        raise ValueError("A draft has no document; issue it first.")
    seller, buyer = invoice.seller, invoice.buyer
    taxed = invoice.tax_rate > 0
    return InvoiceDocument(
        number=invoice.number,
        issued_on=invoice.issued_on,
        due_on=invoice.due_on,
        service_period=period_text(invoice.period_start, invoice.period_end, invoice.timezone),
        customer_no=buyer["slug"],
        purchase_order=buyer["purchase_order"],
        seller=_party(seller),
        buyer=_party(buyer),
        iban=seller["iban"],
        bic=seller["bic"],
        payment_reference=invoice.number,
        currency=invoice.currency,
        lines=tuple(
            _line(line, invoice)
            for line in invoice.lines.select_related("service_period").order_by("position")
        ),
        subtotal=_minor(invoice.subtotal, invoice.currency),
        tax_label=invoice.tax_name if taxed else "",
        tax_rate=f"{invoice.tax_rate.normalize():f}%" if taxed else "",
        tax=_minor(invoice.tax, invoice.currency) if taxed else "",
        total=_minor(invoice.total, invoice.currency),
        amount_due=_minor(invoice.total, invoice.currency),
        notes=_notes(invoice),
    )


def period_text(start: datetime, end: datetime, timezone: str) -> str:
    """`October 2026`, or the first and last day where it is no whole month of the zone."""
    return label(Period(start.astimezone(UTC), end.astimezone(UTC)), ZoneInfo(timezone))


def _line(line: InvoiceLine, invoice: Invoice) -> DocumentLine:
    service = line.service_period
    return DocumentLine(
        description=line.description,
        project=line.project,
        quantity=hours_text(Fraction(int(line.seconds_num), line.seconds_den)),
        unit=f"{line.unit}s",
        unit_price=price_text(line.unit_price, invoice.currency),
        amount=_minor(line.amount, invoice.currency),
        service_period=period_text(service.start, service.end, service.timezone) if line.correction else "",
    )


def _party(frozen: dict[str, str]) -> Party:
    return Party(
        name=frozen["name"],
        address_lines=tuple(line for line in frozen["address"].splitlines() if line.strip()),
        vat_id=frozen["vat_id"],
        email=frozen["email"],
        registration=frozen.get("registration", ""),
    )


def _notes(invoice: Invoice) -> str:
    notes = ["Each line opens to the jobs behind it in the portal, where it can be recomputed to the second."]
    if invoice.terms.get("incomplete"):
        notes.append(f"Issued before all usage was read: {invoice.terms['incomplete']}")
    return "\n".join(notes)


def _minor(amount: int, currency: str) -> str:
    return money_text(Money.from_minor(amount, currency))
