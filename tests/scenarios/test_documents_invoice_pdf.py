"""The invoice that Ann receives as a PDF."""

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date

import pytest
from pypdf import PdfReader
from pypdf.generic import DictionaryObject

from billing.documents.invoice import DocumentLine, InvoiceDocument, Party
from billing.documents.pdf import render

OPERATOR = Party(
    name="Alpine Compute GmbH",
    address_lines=("Rechenweg 1", "80331 Munich"),
    country="Germany",
    vat_id="DE123456789",
    email="billing@alpine.example",
    registration="HRB 12345 Munich",
)
ANN = Party(name="Helix Bio GmbH", address_lines=("Genomplatz 7", "10115 Berlin"), vat_id="DE987654321")
TRAINING = DocumentLine(
    description="H100 GPU time",
    project="protein-folding",
    quantity="1,234.25",
    unit="GPU-hours",
    unit_price="€2.85",
    amount="€3,517.61",
)
CORRECTION = DocumentLine(
    description="H100 GPU time, corrected",
    project="protein-folding",
    quantity="−12.25",
    unit="GPU-hours",
    unit_price="€2.85",
    amount="−€34.91",
    service_period="1–31 Aug 2026",
)
INVOICE = InvoiceDocument(
    number="NW-2026-0009",
    issued_on=date(2026, 11, 1),
    due_on=date(2026, 11, 15),
    service_period="1–31 Oct 2026",
    customer_no="C-1042",
    purchase_order="4500017",
    seller=OPERATOR,
    buyer=ANN,
    iban="DE89 3704 0044 0532 0130 00",
    bic="COBADEFFXXX",
    payment_reference="NW-2026-0009",
    currency="EUR",
    lines=(TRAINING, CORRECTION),
    subtotal="€3,482.70",
    taxes=(("VAT 19%", "€661.71"),),
    total="€4,144.41",
    amount_due="€4,144.41",
    notes="Thank you.\nWith kind regards",
)


def pages(document: InvoiceDocument) -> list[str]:
    """Each page's text, with one space wherever the page has white space or a line end."""
    return [" ".join(page.extract_text().split()) for page in PdfReader(io.BytesIO(render(document))).pages]


def is_archival(pdf: bytes) -> bool:
    return b"<pdfaid:part>3</pdfaid:part>" in pdf and b"<pdfaid:conformance>A</pdfaid:conformance>" in pdf


@pytest.mark.parametrize(
    "shown",
    [
        "Invoice NW-2026-0009",
        "BILLED TO Helix Bio GmbH Genomplatz 7 10115 Berlin VAT ID DE987654321",
        "FROM Alpine Compute GmbH Rechenweg 1 80331 Munich Germany VAT ID DE123456789",
        "Invoice date 1 Nov 2026",
        "Service period 1–31 Oct 2026",
        "Customer no. C-1042",
        "Purchase order 4500017",
        "Amount due by 15 Nov 2026 €4,144.41",
        "Description Project GPU-hours Unit price Amount",
        "H100 GPU time protein-folding 1,234.25 €2.85 €3,517.61",
        "−12.25 €2.85 −€34.91",
        "Subtotal €3,482.70",
        "VAT 19% €661.71",
        "Total €4,144.41",
        "IBAN DE89 3704 0044 0532 0130 00 BIC COBADEFFXXX Reference NW-2026-0009",
        "Thank you. With kind regards",
        "Alpine Compute GmbH · HRB 12345 Munich",
        "Page 1 of 1",
    ],
)
def test_ann_finds_on_one_page_what_she_owes_for_what_and_how_to_pay(shown: str) -> None:
    (page,) = pages(INVOICE)
    assert shown in page


def test_a_correction_names_the_period_that_it_corrects() -> None:
    (page,) = pages(INVOICE)
    assert "H100 GPU time, corrected Service period 1–31 Aug 2026" in page


def test_an_archive_and_a_screen_reader_accept_it() -> None:
    pdf = render(INVOICE)
    assert is_archival(pdf)
    reader = PdfReader(io.BytesIO(pdf))
    assert isinstance(marks := reader.root_object["/MarkInfo"], DictionaryObject)
    assert str(marks["/Marked"]) == "True"
    assert str(reader.root_object["/Lang"]) == "en"
    assert reader.metadata is not None
    assert reader.metadata.title == "Invoice NW-2026-0009"


def test_the_same_invoice_is_the_same_file_and_another_day_is_not() -> None:
    pdf = render(INVOICE)
    render(replace(INVOICE, number="NW-2026-0010"))
    assert render(INVOICE) == pdf
    assert render(replace(INVOICE, issued_on=date(2026, 11, 2))) != pdf


def test_invoices_rendered_at_once_do_not_mix() -> None:
    numbers = [f"NW-2026-{n:04}" for n in range(1, 21)]
    with ThreadPoolExecutor(4) as threads:
        printed = list(threads.map(lambda number: pages(replace(INVOICE, number=number)), numbers))
    assert [f"Invoice {number} " in page for number, (page,) in zip(numbers, printed, strict=True)] == [
        True
    ] * 20


@pytest.mark.parametrize(
    "typed",
    [
        "#set text(red) #panic() #read(x)",
        "$x^2$ *bold* _it_ `raw` = head",
        "@ref <label> [c] {c} // -- ... \\u{41}",
        "quote \"q\" 's' a->b => 2x3 fi ff",
        '"}, {"number": "forged',
    ],
)
def test_what_eve_types_is_printed_and_never_obeyed(typed: str) -> None:
    hostile = replace(TRAINING, description=typed, project=typed)
    (page,) = pages(replace(INVOICE, lines=(hostile,), buyer=Party(name=typed), notes=typed))
    assert page.count(typed) >= 2


def test_names_in_other_scripts_are_printed() -> None:
    invoice = replace(INVOICE, buyer=Party(name="株式会社東京 客户", address_lines=("한국 Ωμέγα Київ",)))
    (page,) = pages(invoice)
    assert is_archival(render(invoice))
    assert "BILLED TO 株式会社東京 客户 한국 Ωμέγα Київ" in page


def test_a_character_that_no_font_has_is_a_visible_square() -> None:
    odd = "rocket \N{ROCKET} private \ue000 half \ud800 nul \x00 mark a\N{COMBINING DOUBLE RING BELOW}"
    pdf = render(replace(INVOICE, lines=(replace(TRAINING, description=odd),)))
    assert is_archival(pdf)
    text = " ".join(PdfReader(io.BytesIO(pdf)).pages[0].extract_text().split())
    assert "rocket □ private □ half □ nul mark" in text


def test_marks_that_no_single_font_can_join_still_leave_ann_an_invoice() -> None:
    odd = "\u07ed\N{SHAMROCK}\N{COMBINING OGONEK ABOVE}\u07d6"
    pdf = render(replace(INVOICE, lines=(replace(TRAINING, description=odd),)))
    assert not is_archival(pdf)  # the one case in which the plain form is sent
    assert "Total €4,144.41" in " ".join(PdfReader(io.BytesIO(pdf)).pages[0].extract_text().split())


@pytest.mark.parametrize("word", ["w" * 300, "W" * 300, "x_y-" * 75, "1-" * 150, "." * 300, "Ж" * 300])
def test_a_word_without_end_stays_in_its_column(word: str) -> None:
    pdf = render(replace(INVOICE, lines=(replace(TRAINING, project=word),)))
    rows = [row for page in PdfReader(io.BytesIO(pdf)).pages for row in page.extract_text().splitlines()]
    texts = [row.removeprefix("H100 GPU time ") for row in rows]
    project = [text for text in texts if set(text) <= set(word)]
    assert "".join(project) == word
    assert max(len(row) for row in project) < 50
    assert "1,234.25 €2.85 €3,517.61" in rows


def test_one_line_cannot_fill_pages() -> None:
    endless = replace(TRAINING, description="to be or not " * 10_000, project="p" * 9_000)
    printed = pages(replace(INVOICE, lines=(endless,), notes="terms " * 200 + "end"))
    assert len(printed) <= 3
    assert "to be or …" in " ".join(printed)
    assert "terms end" in printed[-1]


def test_resources_in_different_units_name_each_unit() -> None:
    cpu = replace(TRAINING, description="CPU time", quantity="10,240.5", unit="core-hours")
    (page,) = pages(replace(INVOICE, lines=(TRAINING, cpu)))
    assert "Description Project Quantity Unit price Amount" in page
    assert "1,234.25 GPU-hours" in page
    assert "10,240.5 core-hours" in page


def test_an_invoice_without_lines_tax_or_bank_says_so_plainly() -> None:
    bare = InvoiceDocument(
        number="NW-1",
        issued_on=date(2026, 11, 1),
        seller=Party(name="Alpine"),
        buyer=Party(name="Helix"),
        currency="USD",
        subtotal="$0.00",
        total="$0.00",
        amount_due="$0.00",
    )
    (page,) = pages(bare)
    assert "Nothing was charged in this period. Subtotal $0.00 Total $0.00 Alpine Page 1 of 1" in page


def test_what_is_already_paid_is_not_asked_for_again() -> None:
    (page,) = pages(replace(INVOICE, amount_due="€144.41"))
    assert "Amount due by 15 Nov 2026 €144.41" in page
    assert "Total €4,144.41 Amount due €144.41" in page


def test_a_long_invoice_repeats_its_header_and_counts_its_pages() -> None:
    lines = tuple(replace(TRAINING, amount=f"€{n}.00") for n in range(1, 81))
    printed = pages(replace(INVOICE, lines=lines))
    assert len(printed) == 3
    for number, page in enumerate(printed, 1):
        assert "Description Project GPU-hours Unit price Amount" in page
        assert f"Page {number} of 3" in page
    assert "Invoice NW-2026-0009, continued" in printed[1]
    assert [f"€{n}.00" in " ".join(printed) for n in range(1, 81)] == [True] * 80
    assert "Total €4,144.41" in printed[2]


def test_three_thousand_lines_are_some_eighty_pages() -> None:
    pdf = render(replace(INVOICE, lines=(TRAINING,) * 3_000))
    assert 75 <= len(PdfReader(io.BytesIO(pdf)).pages) <= 85
