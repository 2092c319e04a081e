"""Ann has credit when an invoice is issued: it says what that paid, and asks for the rest alone, for ever."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from billing.documents import build, einvoice, issued
from billing.models import Invoice, InvoiceDocument, TaxRate
from billing.receivables import credit_balance
from billing.rules.bank_details import bank_details
from billing.rules.money import Money
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_seller, ingest
from tests.einvoices import LAB, NORTH
from tests.en16931 import broken, read
from tests.evidence import bundle, verified
from tests.statements import Line, a_lab, camt, imported, march, stands
from tests.stories import close, invoice_of, prove

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Tenant:
    """Its invoice of March is over 20.00 EUR."""
    return a_lab()


def april(lab: Tenant) -> Invoice:
    """Over 4.00 EUR."""
    ingest(a_cluster(), a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00", gpus=2))
    close("2026-04", lab)
    return invoice_of(lab, "2026-04")


def pays(amount: str) -> None:
    imported(camt(Line(amount=amount, text="INV-2026-0001", name="B1", end_to_end="E1")))


def test_the_document_deducts_what_credit_paid_and_its_code_asks_for_the_rest(lab: Tenant) -> None:
    pays("23.00")
    invoice = april(lab)
    shown = build.document_of(invoice)
    assert (shown.total, shown.prepaid, shown.amount_due) == (
        "€4.00",
        (("Paid from credit balance", "-€3.00"),),
        "€1.00",
    )
    details = bank_details(seller=invoice.seller, name=invoice.number or "", amount=Money.of("1.00", "EUR"))
    assert details is not None
    assert shown.payment_code == details.code != ()
    assert (stands(invoice), credit_balance.get_balance(lab, "EUR")) == (("due", "3.00", "1.00"), 0)
    prove()


def test_the_e_invoice_states_it_as_paid_before(lab: Tenant) -> None:
    pays("23.00")
    a_seller(**NORTH)
    Tenant.objects.update(**LAB)
    TaxRate.objects.create(country="DE", rate=25, since=date(2021, 1, 1))
    xml = einvoice.xml(april(lab))  # 4.00 and 1.00 of tax
    assert broken(xml) == [], xml.decode()
    sums = read(xml).all("//ram:SpecifiedTradeSettlementHeaderMonetarySummation")[0]
    names = ("ram:GrandTotalAmount", "ram:TotalPrepaidAmount", "ram:DuePayableAmount")
    assert [sums.text(name) for name in names] == ["5.00", "3.00", "2.00"]


def test_what_credit_pays_in_full_asks_for_no_transfer(lab: Tenant) -> None:
    pays("25.00")
    invoice = april(lab)
    shown = build.document_of(invoice)
    assert (shown.prepaid, shown.amount_due) == ((("Paid from credit balance", "-€4.00"),), "€0.00")
    assert (shown.iban, shown.payment_reference, shown.payment_code) == ("", "", ())
    assert (stands(invoice), credit_balance.get_balance(lab, "EUR")) == (("paid", "4.00", "0.00"), 100)


def test_the_document_stays_as_it_was_whatever_becomes_of_the_credit(lab: Tenant) -> None:
    pays("23.00")
    invoice = april(lab)
    outbox.drain()
    pdf_bytes = bytes(InvoiceDocument.objects.get(invoice=invoice).pdf)
    imported(camt(Line(amount="-23.00", name="B9", end_to_end="E1", returned="AC04"), name="next"))
    assert (stands(march(lab)), stands(invoice)) == (("due", "0.00", "20.00"), ("due", "0.00", "4.00"))
    invoice.refresh_from_db()
    assert issued.made(invoice).pdf == pdf_bytes
    prove()


def test_without_credit_nothing_is_deducted_and_what_comes_later_changes_no_document(lab: Tenant) -> None:
    invoice = april(lab)
    before = issued.made(invoice).pdf
    assert build.document_of(invoice).prepaid == ()
    pays("22.00")
    assert stands(invoice) == ("due", "2.00", "2.00")
    assert issued.made(Invoice.objects.get(pk=invoice.pk)).pdf == before
    prove()


def test_the_evidence_says_it_too_and_is_verified(lab: Tenant, tmp_path: Path) -> None:
    pays("23.00")
    assert verified(bundle(april(lab)), tmp_path)[0] == 0
