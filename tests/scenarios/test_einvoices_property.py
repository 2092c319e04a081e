"""Whatever a document is made of, its e-invoice keeps every rule, those of the publishers too."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from billing.documents import einvoice
from billing.documents.typesetting import write_einvoice
from billing.invoicing import line_taxes
from billing.models import BillingPeriod, DocumentKind, Invoice, InvoiceLine, InvoiceTax, LineKind
from billing.rules import supply
from billing.rules import tax as tax_rules
from billing.rules.meters import PerUnit
from tests.en16931 import holds
from tests.tiers import examples

MARCH = BillingPeriod(
    pk=1, start=datetime(2026, 3, 1, tzinfo=UTC), end=datetime(2026, 4, 1, tzinfo=UTC), timezone="UTC"
)
TAXES = st.sampled_from(
    [
        tax_rules.Tax(name, Decimal(rate))
        for name, rate in (("S", "19"), ("S", "7.7"), ("AE", "0"), ("E", "0"), ("G", "0"))
    ]
)


@st.composite
def lines(draw: st.DrawFn, currency: str) -> InvoiceLine:
    """Usage at a price, the rest of it after what was billed, a share of it, or an amount alone; of any sign."""
    kind = draw(
        st.sampled_from([LineKind.USAGE, LineKind.FEE, LineKind.DISCOUNT, LineKind.MANUAL, LineKind.CREDIT])
    )
    taxed = draw(TAXES)
    line = InvoiceLine(
        kind=kind, description=draw(st.text(max_size=20)), project="vision", service_period=MARCH,
        seconds_num=Decimal(0), seconds_den=1, tax_category=taxed.category, tax_rate=taxed.rate,
        amount=draw(st.integers(min_value=-(10**9), max_value=10**9)),
    )  # fmt: skip
    if kind == LineKind.USAGE:
        seconds = draw(st.fractions(min_value=-(10**8), max_value=10**8, max_denominator=7))
        price = draw(st.decimals(min_value=0, max_value=1000, places=draw(st.sampled_from([0, 2, 4, 7]))))
        line.seconds_num, line.seconds_den = Decimal(seconds.numerator), seconds.denominator
        line.unit, line.unit_price = "GPU-hour", draw(st.sampled_from([price, None]))
        exact = PerUnit(price).amount(abs(seconds), currency).rounded().minor
        line.amount = (exact if seconds >= 0 else -exact) + draw(st.integers(min_value=-1, max_value=1))
    return line


@st.composite
def documents(draw: st.DrawFn) -> tuple[Invoice, list[InvoiceLine], list[InvoiceTax]]:
    currency = draw(st.sampled_from(["EUR", "JPY"]))
    invoice_lines = draw(st.lists(lines(currency), min_size=1, max_size=8))
    for position, line in enumerate(invoice_lines, start=1):
        line.position = position
    kind = draw(st.sampled_from([DocumentKind.INVOICE, DocumentKind.CREDIT_NOTE]))
    taxes = line_taxes.sum_taxes(invoice_lines, currency)
    party = {
        "address": "Gate 1", "postcode": "10115", "city": "Berlin", "email": "n@north.example", "name": "N",
        "registration": "HRB 1", "iban": "", "bic": "", "contact_name": "Ann", "contact_phone": "+49 30 123",
    }  # fmt: skip
    reference = draw(st.sampled_from(["", "04011000-1234512345-06"]))
    invoice = Invoice(
        kind=kind, number="NC-1", currency=currency, issued_on=date(2026, 4, 3), due_on=date(2026, 4, 17),
        period_start=MARCH.start, period_end=MARCH.end, timezone="UTC", reason="Why.",
        seller=party | {"country": "DE", "vat_id": "DE811234565"},
        buyer=party | {"country": "FR", "vat_id": "FR40303265045", "slug": "lab", "purchase_order": ""}
        | {"buyer_reference": reference},
        subtotal=sum(row.net.minor for row in taxes), tax=sum(row.tax.minor for row in taxes),
    )  # fmt: skip
    invoice.total = invoice.subtotal + invoice.tax
    invoice.prepaid = draw(st.sampled_from([0, invoice.total, invoice.total // 2]))
    for line in invoice_lines:
        line.invoice = invoice
    rows = [
        InvoiceTax(
            invoice=invoice, category=row.kind.category, rate=row.kind.rate, net=row.net.minor, tax=row.tax.minor,
            reason=supply.REASONS.get(row.kind.category, ""),
        )
        for row in taxes
    ]  # fmt: skip
    return invoice, invoice_lines, rows


@settings(max_examples=examples(25, 500))
@given(documents())
def test_the_rules_hold_for_any_document(
    document: tuple[Invoice, list[InvoiceLine], list[InvoiceTax]],
) -> None:
    holds(write_einvoice(einvoice.terms_of(*document)))
