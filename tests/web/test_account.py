"""Carla, who pays for the lab, closes her own books: the statement of account, and a year's documents in one file."""

from __future__ import annotations

import csv
import io
from datetime import date
from zipfile import ZipFile

import pytest
from pypdf import PdfReader

from billing.documents import issued
from billing.invoicing import credit_notes
from billing.models import InvoiceDocument
from billing.receivables import settlement
from billing.reports.account_statement import load_statements
from billing.reports.receipts import load_receipts
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope
from tests import sharing
from tests.builders import at
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

ADDRESS = "/t/vision-lab/account/"


def a_house_with_a_payment() -> House:
    """Vision lab has an invoice of its March, issued in April 2026, of which 10.00 came in May."""
    house = a_house()
    settlement.record_payment(
        invoice=house.invoice,
        amount=Money.of("10.00", house.invoice.currency),
        received_on=date(2026, 5, 4),
        reference="Transfer of May",
        recorded_by="op",
    )
    return house


begun, house = sharing.fixtures(a_house_with_a_payment, "house")


def rows(house: House, year: int) -> list[dict[str, str]]:
    text = signed_in(house.carla).get(f"{ADDRESS}csv?year={year}").content.decode()
    return list(csv.DictReader(io.StringIO(text)))


def files(response: object) -> dict[str, bytes]:
    archive = ZipFile(io.BytesIO(b"".join(response.streaming_content)))  # type: ignore[attr-defined]
    return {name: archive.read(name) for name in archive.namelist()}


def test_each_row_has_the_balance_after_it(house: House) -> None:
    total, number = Money.from_minor(house.invoice.total, "USD"), house.invoice.number

    assert [(row["event"], row["document"], row["charge"], row["payment"]) for row in rows(house, 2026)] == [
        ("opening", "", "", ""),
        ("invoice", number, total.text, ""),
        ("payment", number, "", "10.00"),
    ]
    assert [row["balance"] for row in rows(house, 2026)] == [
        "0.00", total.text, (total - Money.of("10.00", "USD")).text,
    ]  # fmt: skip
    assert [(row["event"], row["balance"]) for row in rows(house, 2027)] == [
        ("opening", (total - Money.of("10.00", "USD")).text)
    ]


def test_the_page_says_what_is_to_pay_and_leads_to_documents_and_years(house: House) -> None:
    text = page(house.carla, f"{ADDRESS}?year=2026")

    assert "Statement of account 2026" in text
    assert "Closing balance: to pay" in text
    assert "Transfer of May" in text
    assert f"/t/vision-lab/invoices/{house.invoice.number}/" in text
    assert "/t/vision-lab/account/" in page(house.carla, "/t/vision-lab/invoices/")


def test_a_credit_note_of_all_leaves_what_was_paid_as_owed_to_the_tenant(house: House) -> None:
    credit_notes.issue_credit_note(
        invoice=house.invoice, reason="A failed node", by="op", on=date(2026, 5, 10)
    )

    text = page(house.carla, f"{ADDRESS}?year=2026")

    assert "Credit note" in text
    assert "Closing balance: credit of yours" in text


def test_all_documents_of_a_year_are_one_file(house: House) -> None:
    number = house.invoice.number
    InvoiceDocument.objects.filter(invoice=house.invoice).delete()
    archive = files(signed_in(house.carla).get(f"{ADDRESS}documents?year=2026"))
    receipt = f"receipts/2026-05-04-{number}.pdf"
    assert set(archive) == {"not-rendered-yet.txt", "statement-of-account.csv", receipt}
    assert str(number) in archive["not-rendered-yet.txt"].decode()
    assert b"Transfer of May" in archive["statement-of-account.csv"]

    issued.keep(house.invoice, moment=at("2026-05-05"))
    archive = files(signed_in(house.carla).get(f"{ADDRESS}documents?year=2026"))
    assert "not-rendered-yet.txt" not in archive
    assert archive[f"{number}.pdf"].startswith(b"%PDF-")


def text_of(pdf: bytes) -> str:
    return " ".join("".join(page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages).split())


def test_each_payment_of_the_year_has_its_receipt_and_they_add_up_to_the_statement(house: House) -> None:
    def pay(amount: str, day: date, reference: str) -> None:
        settlement.record_payment(
            invoice=house.invoice,
            amount=Money.of(amount, "USD"),
            received_on=day,
            reference=reference,
            recorded_by="op",
        )

    pay("1.00", date(2026, 5, 4), "Second of the day")
    pay("-0.50", date(2026, 6, 1), "Mistake of May")
    first, second = (files(signed_in(house.carla).get(f"{ADDRESS}documents?year=2026")) for _time in range(2))
    assert first == second  # the same payment is the same bytes
    number = house.invoice.number
    texts = {name: text_of(pdf) for name, pdf in first.items() if name.startswith("receipts/")}
    assert sorted(texts) == [
        f"receipts/2026-05-04-{number}-2.pdf",
        f"receipts/2026-05-04-{number}.pdf",
        f"receipts/2026-06-01-{number}.pdf",
    ]
    receipt = texts[f"receipts/2026-05-04-{number}.pdf"]
    for words in ("Receipt", "$10.00", "4 May 2026", "Transfer of May", f"{number}", "Vision"):
        assert words in receipt
    assert "Paid back" in texts[f"receipts/2026-06-01-{number}.pdf"]
    with acting_scope(house.vision):
        statements = load_statements(house.vision, since=date(2026, 1, 1), until=date(2027, 1, 1))
        receipts = load_receipts(house.vision, statements)
    paid = [row["payment"] or f"-{row['charge']}" for row in rows(house, 2026) if row["event"] == "payment"]
    assert sorted(one.amount.text for one in receipts) == sorted(paid) == ["-0.50", "1.00", "10.00"]


def test_a_receipt_is_in_the_tenants_language(house: House) -> None:
    Tenant.objects.filter(pk=house.vision.pk).update(language="de")
    archive = files(signed_in(house.carla).get(f"{ADDRESS}documents?year=2026"))
    receipt = text_of(archive[f"receipts/2026-05-04-{house.invoice.number}.pdf"])
    for words in ("Zahlungsbeleg", "10,00 $", "4. Mai 2026", "Transfer of May"):
        assert words in receipt.replace("\N{NO-BREAK SPACE}", " ")
    assert "Received" not in receipt


def test_a_year_of_payments_alone_has_its_receipts(house: House) -> None:
    settlement.record_payment(
        invoice=house.invoice,
        amount=Money.of("1.00", "USD"),
        received_on=date(2027, 1, 4),
        reference="January",
        recorded_by="op",
    )
    assert "1 document (ZIP)" in page(house.carla, f"{ADDRESS}?year=2027")
    assert set(files(signed_in(house.carla).get(f"{ADDRESS}documents?year=2027"))) == {
        f"receipts/2027-01-04-{house.invoice.number}.pdf",
        "statement-of-account.csv",
    }


def test_the_account_is_nobodys_who_reads_no_invoices(house: House) -> None:
    for person in (house.ben, house.eve):
        for address in (ADDRESS, f"{ADDRESS}csv", f"{ADDRESS}documents?year=2026"):
            assert signed_in(person).get(address).status_code == 404


@pytest.mark.parametrize("year", ["x", "0000", "99999", "-202", "1970", "٢٠٢٦"])
def test_what_is_no_year_is_no_page(house: House, year: str) -> None:
    for address in (ADDRESS, f"{ADDRESS}csv", f"{ADDRESS}documents"):
        assert signed_in(house.carla).get(address, {"year": year}).status_code == 404


def test_before_the_first_invoice_the_page_says_what_will_be_there(house: House) -> None:
    text = page(house.eve, "/t/speech-lab/account/?year=1999")

    assert "Nothing was billed yet" in text
