"""What is sent of an issued document: the PDF, and the e-invoice in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from django.db import transaction

from billing.documents import build, einvoice, evidence, pdf, signing
from billing.documents.einvoice import EInvoiceError
from billing.models import Invoice, InvoiceDocument


@dataclass(frozen=True, slots=True)
class Made:
    """`einvoice`: the XML that the PDF carries; without one, `refusal` says why EN 16931 cannot state it."""

    pdf: bytes
    einvoice: bytes | None
    refusal: str = ""


def made(invoice: Invoice) -> Made:
    """The same document gives the same bytes. Seven queries. Raises TypesettingError where there is no PDF,
    or where it is not known yet whether there is an e-invoice."""
    document = build.document_of(invoice)
    try:
        xml = einvoice.xml(invoice)
    except EInvoiceError as refusal:
        return Made(pdf.render(document), None, str(refusal))
    return Made(pdf.render(document, einvoice=xml), xml)


@transaction.atomic
def keep(invoice: Invoice, *, moment: datetime) -> InvoiceDocument:
    """Fix the document's evidence, then render what is sent and sign it; what is kept already stays.

    Raises TypesettingError as `made` does, and VaultError where nothing can be signed.
    """
    Invoice.objects.select_for_update(no_key=True).get(
        pk=invoice.pk
    )  # whoever else makes it waits, and finds it
    existing = InvoiceDocument.objects.filter(invoice=invoice).first()
    if existing is not None:
        return existing
    fixed = evidence.fix(invoice, moment=moment)
    content = made(invoice)
    key = signing.current_key(moment=moment)
    digests = evidence.documents(fixed, pdf=content.pdf, einvoice=content.einvoice)
    return InvoiceDocument.objects.create(
        invoice=invoice,
        tenant_id=invoice.tenant_id,
        pdf=content.pdf,
        sha256=sha256(content.pdf).hexdigest(),
        einvoice=content.einvoice,
        no_einvoice=content.refusal,
        key=key,
        signature=signing.sign(digests, key=key),
    )
