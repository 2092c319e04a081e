"""An invoice as a PDF that one would send to a customer, and that an archive accepts."""

import json
import threading
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time
from functools import cache
from pathlib import Path

import typst

from billing.documents.glyphs import FONTS, printable
from billing.documents.invoice import InvoiceDocument

_TEMPLATE = Path(__file__).with_name("invoice.typ")
_LONGEST = 400  # characters of one text but the notes; more would let one line of an invoice fill pages
_ARCHIVAL: "list[typst.PDFStandard]" = ["a-3a", "ua-1"]
_threads = threading.local()  # a compiler keeps its inputs, so each thread has its own


def render(document: InvoiceDocument) -> bytes:
    """The document as PDF/A-3a and PDF/UA-1: tagged, fonts embedded; the same document gives the same bytes.

    Texts are data, never markup. A character that no bundled font has is printed as a white square. Should
    the archival profile still refuse the text, the answer is the same pages as plain, tagged PDF 1.7.
    """
    source = json.dumps(_plain(document))
    created = datetime.combine(document.issued_on, time.min, tzinfo=UTC)
    try:
        return _compile(source, created, _ARCHIVAL)
    except typst.TypstError:
        return _compile(source, created, ["1.7"])


def _compile(source: str, created: datetime, standards: "list[typst.PDFStandard]") -> bytes:
    pdf = _compiler().compile(
        format="pdf", sys_inputs={"document": source}, pdf_standards=standards, timestamp=created
    )
    if not isinstance(pdf, bytes):
        raise TypeError("a PDF is one piece of bytes")
    return pdf


def _compiler() -> typst.Compiler:
    if not hasattr(_threads, "compiler"):
        _threads.compiler = typst.Compiler(input=_TEMPLATE, font_paths=_fonts(), ignore_system_fonts=True)
    compiler: typst.Compiler = _threads.compiler
    return compiler


@cache
def _fonts() -> typst.Fonts:
    return typst.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=[FONTS])


def _plain(value: object) -> object:
    """The value as JSON knows it, with texts that can be printed."""
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, InvoiceDocument):
        return _members(value) | {"notes": [printable(line) for line in value.notes.splitlines()]}
    return _members(value) if is_dataclass(value) else value


def _members(value: object) -> dict[str, object]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]
