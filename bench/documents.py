"""An invoice as PDF, beside the typesetter alone with the same template and data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime

import typst

from bench.result import Goal, Result, Side, in_turn
from bench.scale import Scale
from billing.documents import pdf, typesetter, typesetting
from billing.documents.invoice import DocumentLine, InvoiceDocument, Party


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    for name, lines, copies in (("pdf20", 20, 200), ("pdf500", 500, 20)):
        if name in names:
            yield _invoice(name, lines, scale.of(copies * 10) // 10 or 1, scale, postmaster)


def _invoice(name: str, lines: int, copies: int, scale: Scale, postmaster: int) -> Result:
    documents = [document(lines, number) for number in range(copies)]
    sources = [json.dumps(pdf.source(document)) for document in documents]
    moment = datetime(2026, 2, 1, tzinfo=UTC)
    fonts = typst.Fonts(
        include_system_fonts=False, include_embedded_fonts=False, font_paths=[typesetter.HERE / "fonts"]
    )
    compiler = typst.Compiler(
        input=typesetter.HERE / "invoice.typ", font_paths=fonts, ignore_system_fonts=True
    )

    def bare() -> None:
        for source in sources:
            compiler.compile(
                format="pdf",
                sys_inputs={"document": source},
                pdf_standards=["a-3a", "ua-1"],
                timestamp=moment,
            )

    def ours() -> None:
        for document in documents:
            pdf.render(document)
        typesetting.close()  # its CPU counts once it has ended

    ours()
    bare()
    cost, least = in_turn(postmaster, Side(ours), Side(bare), rounds=scale.rounds)
    title = f"invoice of {lines} lines as PDF, beside bare typst"
    return Result(name, title, copies, "invoices", cost, least, Goal(at_least="0.80"))


def document(lines: int, number: int) -> InvoiceDocument:
    """All invoices differ, as real ones do: the typesetter remembers what it has set."""
    rows = tuple(
        DocumentLine(
            description=f"GPU time, h100, queue batch{n % 7}",
            project=f"project {number}-{n}",
            quantity=f"{n * 37 + number}.25",
            unit="GPU-hours",
            unit_price="$2.85",
            amount=f"${n * 105 + number}.46",
        )
        for n in range(lines)
    )
    return InvoiceDocument(
        number=f"INV-2026-{number:04d}",
        issued_on=date(2026, 2, 1),
        due_on=date(2026, 2, 15),
        service_period="January 2026",
        customer_no="lab0001",
        seller=Party(name="Northern Compute GmbH", address_lines=("Hafenstraße 1", "20457 Hamburg")),
        buyer=Party(name="Vision Lab", address_lines=("1 Campus Road",)),
        currency="USD",
        lines=rows,
        subtotal="$1,000.00",
        total="$1,000.00",
        amount_due="$1,000.00",
    )
