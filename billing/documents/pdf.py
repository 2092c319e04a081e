"""An invoice, and a receipt, as a PDF that one would send to a customer, and that an archive accepts."""

from dataclasses import fields, is_dataclass
from datetime import date
from typing import Any

from billing.documents import xrechnung
from billing.documents.glyphs import printable
from billing.documents.invoice import InvoiceDocument
from billing.documents.receipt import Receipt
from billing.documents.typesetting import typeset
from billing.documents.words import day_text, words

_LONGEST = 400  # characters of one text but the notes; more would let one line of an invoice fill pages


def render(document: InvoiceDocument, *, einvoice: bytes | None = None) -> bytes:
    """The document as PDF/A-3a and PDF/UA-1: tagged, fonts embedded; the same document gives the same bytes.

    With an e-invoice it carries that as `factur-x.xml` and says so: it is Factur-X then. An XRechnung it carries as
    `xrechnung.xml`, as Factur-X wants its profile of that name.

    Texts are data, never markup. A character that no bundled font has is printed as a white square. Should
    the archival profile still refuse the text, the answer is the same pages as plain, tagged PDF 1.7. Raises
    TypesettingError where there is none.
    """
    attached = einvoice.decode() if einvoice else ""
    name = "xrechnung.xml" if xrechnung.SPECIFICATION in attached else "factur-x.xml"
    return typeset(source(document), created=document.issued_on, attached=attached, name=name)


def render_receipt(receipt: Receipt) -> bytes:
    """The receipt, with the same promises as of an invoice."""
    document = {**_members(receipt), "words": words(receipt.language)}
    return typeset(document, created=receipt.on, template="receipt")


def source(document: InvoiceDocument) -> dict[str, Any]:
    """What the template takes: the document as JSON knows it, with texts that can be printed."""
    members: dict[str, Any] = _members(document)
    return members | {
        "notes": [printable(line) for line in document.notes.splitlines()],
        "words": words(document.language),
        "issued": day_text(document.issued_on, document.language),
        "due": day_text(document.due_on, document.language) if document.due_on else "",
    }


def _plain(value: object) -> object:
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return _members(value) if is_dataclass(value) else value


def _members(value: object) -> dict[str, object]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]  # told apart before
