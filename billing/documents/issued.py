"""What is sent of an issued document: the PDF, and the e-invoice in it."""

from __future__ import annotations

from dataclasses import dataclass

from billing.documents import build, einvoice, pdf
from billing.documents.einvoice import EInvoiceError
from billing.models import Invoice


@dataclass(frozen=True, slots=True)
class Made:
    """`einvoice`: the XML that the PDF carries; without one, `refusal` says why EN 16931 cannot state it."""

    pdf: bytes
    einvoice: bytes | None
    refusal: str = ""


def made(invoice: Invoice) -> Made:
    """The same document gives the same bytes. Six queries. Raises TypesettingError where there is no PDF,
    or where it is not known yet whether there is an e-invoice."""
    document = build.document_of(invoice)
    try:
        xml = einvoice.xml(invoice)
    except EInvoiceError as refusal:
        return Made(pdf.render(document), None, str(refusal))
    return Made(pdf.render(document, einvoice=xml), xml)
