"""Invoices are set as PDFs in processes of their own, which may end at any time."""

import os
from dataclasses import replace
from datetime import date
from pathlib import Path

import facturx
import pytest

from billing.documents import typesetter, typesetting
from billing.documents.invoice import DocumentLine, InvoiceDocument, Party
from billing.documents.pdf import render
from billing.documents.typesetting import TypesettingError, typeset

INVOICE = InvoiceDocument(
    number="NW-2026-0009",
    issued_on=date(2026, 11, 1),
    seller=Party(name="Alpine Compute GmbH"),
    buyer=Party(name="Helix Bio GmbH"),
    currency="EUR",
    subtotal="€12.00",
    total="€12.00",
    amount_due="€12.00",
)


@pytest.fixture(autouse=True)
def nobody_waits() -> None:
    typesetting.close()


def test_one_process_sets_one_invoice_after_the_other() -> None:
    render(INVOICE)
    (first,) = typesetting.idle
    render(replace(INVOICE, number="NW-2026-0010"))
    assert typesetting.idle == [first]


def test_a_typesetter_that_was_killed_is_replaced() -> None:
    expected = render(INVOICE)
    (first,) = typesetting.idle
    first.kill()
    first.wait()
    assert render(INVOICE) == expected
    assert first not in typesetting.idle


def test_a_typesetter_that_cannot_begin_gives_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(
        TypesettingError, match=r"^The typesetter ended before the document was set: ask for it again\.$"
    ):
        render(INVOICE)


def test_what_cannot_be_set_gives_a_sentence_and_the_next_one_is_set() -> None:
    with pytest.raises(TypesettingError, match=r"^The invoice could not be set as a PDF: .+\.$"):
        typeset({"number": "NW-2026-0009"}, created=date(2026, 11, 1))
    assert render(INVOICE).startswith(b"%PDF-")
    assert len(typesetting.idle) == 1


@pytest.mark.parametrize(
    "befell", [MemoryError(), OSError(28, "No space left on device"), ImportError("No module named 'lxml'")]
)
def test_what_befalls_the_process_refuses_no_document(
    monkeypatch: pytest.MonkeyPatch, befell: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        try:
            raise befell
        except Exception as error:
            raise Exception("The file to check is not valid.") from error  # noqa: TRY002 - as the library has it

    monkeypatch.setattr(facturx, "generate_cii_xml", fail)
    with pytest.raises(Exception, match="The file to check is not valid"):
        typesetter.written({"BT-1": "NW-2026-0009"})


def test_what_the_library_has_against_a_document_is_told() -> None:
    assert typesetter.written({"BT-1": "NW-2026-0009"}).startswith(typesetter.REFUSED)


def test_what_a_typesetter_remembers_of_long_invoices_does_not_grow() -> None:
    """It would be 20 MiB an invoice."""
    render(INVOICE)
    (first,) = typesetting.idle
    for number in range(8):
        render(replace(INVOICE, lines=tuple(_line(f"project {number}-{n}") for n in range(300))))
    assert typesetting.idle == [first]
    memory = int(Path(f"/proc/{first.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert first.poll() is None
    assert memory < typesetter.MOST


def _line(project: str) -> DocumentLine:
    return DocumentLine(
        description="H100 GPU time",
        project=project,
        quantity="12.25",
        unit="GPU-hours",
        unit_price="€2.85",
        amount="€34.91",
    )
