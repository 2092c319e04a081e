"""Ann is told how to pay by bank transfer: reference, account, and for euros a code to scan."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
from pypdf import PdfReader

from billing.documents import build, pdf
from billing.invoicing import credit_notes
from billing.models import Invoice
from billing.rules.bank_details import bank_details
from billing.rules.money import Money
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.stories import closed, invoice_of

IBAN = "DE89370400440532013000"
SELLER = {"name": "Northern Compute GmbH", "iban": "DE89 3704 0044 0532 0130 00", "bic": "COBADEFFXXX"}


def an_invoice(*, currency: str = "EUR", iban: str = IBAN) -> Invoice:
    """Over 20.00."""
    a_seller(iban=iban, bic="COBADEFFXXX")
    cluster = a_cluster(complete_through="2026-05-01")
    vision = a_tenant(plan=a_plan(currency=currency), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(gpus=10))
    closed("2026-03", vision)
    return invoice_of(vision, "2026-03")


def test_the_code_says_what_a_banking_app_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers: Any = importlib.import_module("segno.helpers")
    payloads: list[bytes] = []
    make = helpers._make_epc_qr_data

    def listening(*args: object, **kwargs: object) -> bytes:
        payloads.append(make(*args, **kwargs))
        return payloads[-1]

    monkeypatch.setattr(helpers, "_make_epc_qr_data", listening)
    details = bank_details(seller=SELLER, name="INV-2026-0001", amount=Money.of("1234.50", "EUR"))
    assert details is not None
    assert payloads[0].decode().split("\n") == [
        "BCD",
        "002",
        "1",
        "SCT",
        "COBADEFFXXX",
        "Northern Compute GmbH",
        IBAN,
        "EUR1234.5",
        "",
        details.reference.replace(" ", ""),
    ]
    assert len(details.code) == len(details.code[0])  # a square
    assert set("".join(details.code)) == {"0", "1"}


@pytest.mark.parametrize(
    ("seller", "currency", "code"),
    [
        (SELLER, "EUR", True),
        (SELLER, "USD", False),
        (SELLER | {"iban": "DE00 3704 0044 0532 0130 00"}, "EUR", False),
        (SELLER | {"bic": ""}, "EUR", True),
    ],
)
def test_only_euros_to_an_account_that_can_be_one_have_a_code(
    seller: dict[str, str], currency: str, code: bool
) -> None:
    details = bank_details(seller=seller, name="INV-2026-0001", amount=Money.of("20.00", currency))
    assert details is not None
    assert bool(details.code) is code


def test_without_an_account_or_with_nothing_to_pay_there_are_no_details() -> None:
    assert bank_details(seller=SELLER | {"iban": ""}, name="A", amount=Money.of("20.00", "EUR")) is None
    assert bank_details(seller=SELLER, name="A", amount=Money.zero("EUR")) is None


@pytest.mark.django_db
def test_the_pdf_of_an_invoice_has_reference_account_and_code_and_a_credit_note_has_none() -> None:
    invoice = an_invoice()
    document = build.document_of(invoice)
    assert document.payment_reference == "RF16 INV2 0260 001"
    assert (document.iban, document.bic) == ("DE89 3704 0044 0532 0130 00", "COBADEFFXXX")
    (page,) = PdfReader(io.BytesIO(pdf_bytes := pdf.render(document))).pages
    text = " ".join(page.extract_text().split())
    assert "Reference RF16 INV2 0260 001" in text
    assert "Scan to pay" in text
    assert b"<pdfaid:part>3</pdfaid:part>" in pdf_bytes  # the code costs it neither archive nor screen reader
    assert pdf.render(document) == pdf_bytes

    note = credit_notes.issue_credit_note(
        invoice=invoice, reason="A mistake.", by="op", on=at("2026-04-05").date()
    )
    note_document = build.document_of(note)
    assert (note_document.iban, note_document.payment_reference, note_document.payment_code) == ("", "", ())


@pytest.mark.django_db
def test_in_dollars_the_details_stand_without_a_code() -> None:
    document = build.document_of(an_invoice(currency="USD"))
    assert document.payment_reference.startswith("RF")
    assert document.payment_code == ()
