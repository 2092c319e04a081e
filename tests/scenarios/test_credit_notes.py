"""What was billed too much is given back by credit notes, in a series of their own, and never beyond what is left."""

from __future__ import annotations

import io
from datetime import date
from decimal import Decimal
from hashlib import sha256

import pytest
from django.db import DatabaseError, transaction
from pypdf import PdfReader

from billing.invoicing import credit_notes
from billing.invoicing.credit_notes import CreditError
from billing.models import DocumentKind, Invoice, InvoiceDocument, InvoiceSeries, Payment
from billing.receivables import settlement
from billing.rules.money import Money
from clusters.connectors.base import UsageFact
from portal.core.outbox import outbox
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, ingest, own
from tests.stories import closed, hours, invoice_of, lines_of, printed, prove, total

pytestmark = pytest.mark.django_db

LATER = date(2026, 5, 20)


def a_lab(
    corrections: str = Corrections.CREDIT_NOTE, *, tax_rate: str = "20", slug: str = "vision-lab"
) -> Tenant:
    """Billed 10 hours at 2.00 for March, job 7; everything is read through August."""
    cluster = a_cluster(complete_through="2026-09-01")
    a_seller()
    lab = a_tenant(
        slug,
        plan=a_plan(slug),
        accounts=[(cluster, slug)],
        corrections=corrections,
        tax_rate=Decimal(tax_rate),
    )
    ingest(cluster, job(slug, 10))
    closed("2026-03", lab)
    return lab


def job(slug: str, length: int, key: str = "7@1", day: str = "2026-03-02") -> UsageFact:
    return a_job(
        source_key=f"{slug}/{key}", account=slug, started=f"{day} 10:00", ended=f"{day} {10 + length}:00"
    )


def note(tenant: Tenant) -> Invoice:
    return Invoice.objects.get(tenant=tenant, kind=DocumentKind.CREDIT_NOTE)


def stands(invoice: Invoice) -> tuple[str, str, str, str]:
    """(settlement, paid, credited, due); they add up to the total."""
    balance = settlement.load_balance(invoice=invoice, on=LATER)
    assert (balance.paid + balance.credited + balance.due).minor == invoice.total
    return balance.settlement.value, balance.paid.text, balance.credited.text, balance.due.text


def pay(invoice: Invoice, amount: str, reference: str = "A1") -> Payment:
    return settlement.record_payment(
        invoice=invoice,
        amount=Money.of(amount, invoice.currency),
        received_on=date(2026, 4, 9),
        reference=reference,
        recorded_by="op",
    )


def credit(invoice: Invoice, net: str | None = None, position: int | None = None) -> Invoice:
    money = Money.of(net, invoice.currency) if net else None
    return credit_notes.issue_credit_note(
        invoice=invoice, reason="The queue was down.", by="op", on=LATER, net=money, position=position
    )


def test_case_026_usage_that_shrinks_after_the_invoice_is_given_back_by_a_credit_note() -> None:
    lab = a_lab()
    march = invoice_of(lab, "2026-03")
    before = Invoice.objects.filter(pk=march.pk).values().get()
    Tenant.objects.update(tax_rate=7, name="Renamed Lab")

    ingest(a_cluster(), job("vision-lab", 7), job("vision-lab", 4, "8@1", "2026-04-02"))
    outcome = closed("2026-04", lab)

    assert (outcome.outcome, outcome.number, outcome.total.text) == ("issued", "INV-2026-0002", "8.56")  # type: ignore[union-attr]
    assert [(one.kind, one.number, one.total.text, one.original) for one in outcome.related_documents] == [
        ("credit-note", "CN-2026-0001", "-7.20", "INV-2026-0001")
    ]
    credit_note = note(lab)
    assert printed(credit_note) == [("2026-03", "vision-lab", "-3", "-6.00")]
    assert (credit_note.original, lines_of(credit_note)[0].original) == (march, lines_of(march)[0])
    assert (str(lines_of(credit_note)[0].tax_rate), credit_note.tax, credit_note.buyer) == (
        "20.000",
        -120,
        march.buyer,
    )
    assert printed(invoice_of(lab, "2026-04")) == [("2026-04", "vision-lab", "4", "8.00")]
    assert stands(march) == ("past_due", "0.00", "7.20", "16.80")
    assert stands(credit_note) == ("credit_note", "0.00", "-7.20", "0.00")
    assert Invoice.objects.filter(pk=march.pk).values().get() == before
    assert prove()["billed"] == hours(11)


def test_case_026_on_a_paid_invoice_it_is_to_be_paid_back() -> None:
    lab = a_lab()
    march = invoice_of(lab, "2026-03")
    pay(march, "24.00")

    ingest(a_cluster(), job("vision-lab", 7))
    outcome = closed("2026-04", lab)

    assert (outcome.outcome, outcome.number) == ("corrected", "")
    assert stands(march) == ("paid", "24.00", "7.20", "-7.20")
    pay(march, "-7.20", "refund")
    assert stands(march) == ("paid", "16.80", "7.20", "0.00")
    assert closed("2026-04", lab).outcome == "nothing to bill"  # asked again
    assert prove()["billed"] == hours(7)


def test_what_comes_late_is_on_the_next_invoice_beside_what_is_given_back() -> None:
    lab = a_lab()
    ingest(a_cluster(), job("vision-lab", 7))
    own(lab, a_cluster(), "vision-extra", project="extra")
    ingest(a_cluster(), job("vision-extra", 2, "9@1"), job("vision-lab", 1, "8@1", "2026-04-02"))

    closed("2026-04", lab)

    assert printed(invoice_of(lab, "2026-04")) == [
        ("2026-04", "vision-lab", "1", "2.00"),
        ("2026-03", "extra", "2", "4.00"),
    ]
    assert printed(note(lab)) == [("2026-03", "vision-lab", "-3", "-6.00")]
    assert prove()["billed"] == hours(10)


def test_by_the_policy_of_own_invoices_late_usage_has_one_of_its_own() -> None:
    lab = a_lab(Corrections.OWN_INVOICE)
    ingest(a_cluster(), job("vision-lab", 2, "9@1", "2026-03-20"), job("vision-lab", 1, "8@1", "2026-04-02"))

    outcome = closed("2026-04", lab)

    assert (outcome.number, [(one.kind, one.number) for one in outcome.related_documents]) == (
        "INV-2026-0002",
        [("correction", "INV-2026-0003")],
    )
    assert printed(invoice_of(lab, "2026-04")) == [("2026-04", "vision-lab", "1", "2.00")]
    late = Invoice.objects.get(kind=DocumentKind.CORRECTION)
    assert (printed(late), total(late)) == ([("2026-03", "vision-lab", "2", "4.00")], "4.80")
    assert stands(late) == ("past_due", "0.00", "0.00", "4.80")
    prove()


@pytest.mark.parametrize("policy", Corrections.values)
def test_a_month_with_nothing_to_bill_closes_under_every_policy_of_corrections(policy: str) -> None:
    lab = a_lab(policy)
    assert closed("2026-04", lab).outcome == "nothing to bill"
    prove()


def test_the_seller_says_where_corrections_go_unless_the_tenant_does() -> None:
    lab = a_lab("")
    ingest(a_cluster(), job("vision-lab", 7))
    assert closed("2026-04", lab).outcome == "carried forward"

    a_seller(corrections=Corrections.CREDIT_NOTE, credit_prefix="GS")

    assert [one.number for one in closed("2026-05", lab).related_documents] == ["GS-2026-0001"]
    prove()


def test_what_grew_and_shrinks_again_is_taken_from_the_newest_first_and_then_from_the_rest() -> None:
    lab = a_lab()
    ingest(a_cluster(), job("vision-lab", 13))
    closed("2026-04", lab)
    assert printed(invoice_of(lab, "2026-04")) == [("2026-03", "vision-lab", "3", "6.00")]

    ingest(a_cluster(), job("vision-lab", 8))
    closed("2026-05", lab)

    notes = Invoice.objects.filter(kind=DocumentKind.CREDIT_NOTE).order_by("pk")
    assert [(str(note.original), note.number, note.total) for note in notes] == [
        ("INV-2026-0001", "CN-2026-0001", -480),
        ("INV-2026-0002", "CN-2026-0002", -720),
    ]
    assert sum(int(line.seconds_num) for note in notes for line in lines_of(note)) == -hours(5)
    assert prove()["billed"] == hours(8)


def test_an_invoice_is_credited_by_hand_in_parts_and_never_beyond_what_is_left() -> None:
    lab = a_lab()
    march = invoice_of(lab, "2026-03")

    first = credit(march, "5.00")
    assert (first.number, first.subtotal, first.tax, first.total, first.reason) == (
        "CN-2026-0001", -500, -100, -600, "The queue was down.",
    )  # fmt: skip
    assert stands(march) == ("past_due", "0.00", "6.00", "18.00")
    with pytest.raises(CreditError, match=r"Only 15\.00 USD are left to credit, before tax"):
        credit(march, "15.01")
    assert credit(march, position=1).total == -1800
    assert stands(march) == ("credited", "0.00", "24.00", "0.00")
    with pytest.raises(CreditError, match="Nothing is left to credit of INV-2026-0001"):
        credit(march)
    assert InvoiceSeries.objects.get(name="CN-2026").last_number == 2
    assert prove()["billed"] == hours(10)  # what was used stays used


@pytest.mark.parametrize("policy", Corrections.values)
def test_what_was_credited_by_hand_is_not_given_a_second_time_when_usage_shrinks(policy: str) -> None:
    lab = a_lab(policy)
    march = invoice_of(lab, "2026-03")
    credit(march, "15.00")

    ingest(a_cluster(), job("vision-lab", 2), job("vision-lab", 8, "8@1", "2026-04-02"))  # 4.00 for March
    closed("2026-04", lab)

    billed = sum(Invoice.objects.values_list("subtotal", flat=True))
    assert billed == 2000 - 1500 - 500 + 1600
    ingest(a_cluster(), job("vision-lab", 1, "9@1", "2026-05-02"))
    closed("2026-05", lab)
    assert sum(Invoice.objects.values_list("subtotal", flat=True)) == billed + 200
    with pytest.raises(CreditError, match="Nothing is left"):
        credit(march)
    prove()


def test_what_the_next_invoice_took_off_cannot_be_credited_once_more() -> None:
    lab = a_lab(Corrections.NEXT_INVOICE)
    ingest(a_cluster(), job("vision-lab", 7), job("vision-lab", 8, "8@1", "2026-04-02"))
    closed("2026-04", lab)

    assert credit(invoice_of(lab, "2026-03")).subtotal == -1400
    prove()


def test_case_063_a_credit_note_and_a_correction_are_taxed_as_what_they_correct() -> None:
    by_note, by_next = a_lab(), a_lab(Corrections.NEXT_INVOICE, slug="audio-lab")
    Tenant.objects.update(tax_rate=7)
    for slug in ("vision-lab", "audio-lab"):
        ingest(a_cluster(), job(slug, 7), job(slug, 10, "8@1", "2026-04-02"))
    closed("2026-04", by_note)
    closed("2026-04", by_next)

    assert [(str(t.rate), t.net, t.tax) for t in note(by_note).taxes.all()] == [("20.000", -600, -120)]
    april = invoice_of(by_next, "2026-04")
    assert [(str(t.rate), t.net, t.tax) for t in april.taxes.order_by("rate")] == [
        ("7.000", 2000, 140),
        ("20.000", -600, -120),
    ]
    assert total(april) == "14.20"
    prove()


def test_the_taxes_of_three_credit_notes_add_up_to_that_of_the_invoice() -> None:
    cluster = a_cluster(complete_through="2026-09-01")
    lab = a_tenant(
        plan=a_plan(prices=[("gpu-hour", {}, "0.33", date(2017, 1, 1))]),
        accounts=[(cluster, "vision")],
        tax_rate=20,
    )
    ingest(cluster, a_job(ended="2026-03-02 13:00"))
    closed("2026-03", lab)
    march = invoice_of(lab, "2026-03")
    assert (march.subtotal, march.tax) == (99, 20)

    assert [credit(march, "0.33").tax for _ in range(3)] == [-7, -6, -7]
    assert stands(march) == ("credited", "0.00", "1.19", "0.00")
    prove()


def test_case_082_what_is_credited_and_paid_back_never_exceeds_what_was_paid() -> None:
    march = invoice_of(a_lab(), "2026-03")
    pay(march, "24.00")
    credit(march)
    assert stands(march) == ("paid", "24.00", "24.00", "-24.00")

    pay(march, "-24.00", "refund")

    assert stands(march) == ("credited", "0.00", "24.00", "0.00")
    with pytest.raises(settlement.PaymentError, match=r"Only 0\.00 was paid"):
        pay(march, "-0.01", "again")
    with pytest.raises(CreditError, match="Nothing is left"):
        credit(march)


def test_a_credit_note_can_neither_be_paid_nor_credited() -> None:
    credit_note = credit(invoice_of(a_lab(), "2026-03"))
    with pytest.raises(
        settlement.PaymentError, match="CN-2026-0001 is a credit note; record what is paid back"
    ):
        pay(credit_note, "1.00")
    with pytest.raises(CreditError, match="CN-2026-0001 is a credit note; only an issued invoice"):
        credit(credit_note)
    with pytest.raises(CreditError, match="Say why"):
        credit_notes.issue_credit_note(
            invoice=invoice_of(Tenant.objects.get(), "2026-03"), reason=" ", by="op", on=LATER
        )


def test_case_057_a_credit_note_is_frozen_and_the_database_refuses_one_that_gives_back_too_much() -> None:
    march = invoice_of(a_lab(), "2026-03")
    credit_note = credit(march, "5.00")
    for change in ({"reason": "other"}, {"total": -1}, {"original": None}):
        with pytest.raises(DatabaseError, match="cannot be changed"), transaction.atomic():
            Invoice.objects.filter(pk=credit_note.pk).update(**change)
    line, tax = lines_of(credit_note)[0], credit_note.taxes.get()
    credit_note.pk, credit_note.number, credit_note.state = None, None, "draft"
    credit_note.subtotal, credit_note.tax, credit_note.total = -1600, -320, -1920
    credit_note.save(force_insert=True)
    line.pk, line.amount, line.invoice = None, -1600, credit_note
    line.save(force_insert=True)
    tax.pk, tax.net, tax.tax, tax.invoice = None, -1600, -320, credit_note
    tax.save(force_insert=True)

    with pytest.raises(DatabaseError, match="exceeds what is left of its invoice"), transaction.atomic():
        Invoice.objects.filter(pk=credit_note.pk).update(
            state="issued", number="CN-2026-0002", issued_on=LATER, due_on=LATER
        )


def test_the_credit_note_is_a_pdf_that_names_its_invoice() -> None:
    march = invoice_of(a_lab(), "2026-03")
    outbox.drain()
    digest = InvoiceDocument.objects.get(invoice=march).sha256
    credit_note = credit(march, "5.00")
    outbox.drain()

    pdf = bytes(InvoiceDocument.objects.get(invoice=credit_note).pdf)
    text = " ".join(" ".join(page.extract_text().split()) for page in PdfReader(io.BytesIO(pdf)).pages)

    for shown in (
        "Credit note CN-2026-0001", "Credits invoice INV-2026-0001", "Amount given back -$6.00", "VAT 20% -$1.00",
        "The queue was down.", "Credit: GPU time",
    ):  # fmt: skip
        assert shown in text, text
    assert "IBAN" not in text
    march_pdf = bytes(InvoiceDocument.objects.get(invoice=march).pdf)
    assert sha256(march_pdf).hexdigest() == digest
