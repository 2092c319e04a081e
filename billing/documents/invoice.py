"""What an invoice document shows.

Plain values, independent of the database: whoever builds an `InvoiceDocument` has already rounded and
formatted every quantity and amount. A document does no arithmetic and checks no sums.
"""

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, kw_only=True, slots=True)
class Party:
    """A seller or a buyer, as frozen on the invoice."""

    name: str
    address_lines: tuple[str, ...] = ()
    country: str = ""
    vat_id: str = ""
    email: str = ""
    registration: str = ""  # e.g. "HRB 12345 Munich"; shown in the footer, sellers only


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentLine:
    """One row of the table; every text is printed as it is."""

    description: str
    quantity: str  # empty, as are unit and unit price, where the line is an amount alone
    unit: str  # e.g. "GPU-hours"; heads the column when all lines share it
    unit_price: str
    amount: str
    project: str = ""
    detail: str = ""  # how it is priced, where no unit price says it all
    service_period: str = ""  # only where it differs from the document's: the period a correction is about


@dataclass(frozen=True, kw_only=True, slots=True)
class InvoiceDocument:
    """Everything that is printed on an invoice; an empty text leaves its row out."""

    number: str
    kind: str = "Invoice"
    issued_on: date  # also the creation date of the file, so that the same document is the same bytes
    due_on: date | None = None
    refers_to: tuple[tuple[str, str], ...] = ()  # other documents: ("Credits invoice", "INV-2026-0001")
    service_period: str = ""
    customer_no: str = ""
    buyer_reference: str = ""
    purchase_order: str = ""
    seller: Party
    buyer: Party
    iban: str = ""
    bic: str = ""
    payment_reference: str = ""
    payment_code: tuple[str, ...] = ()  # rows of a QR code, "1" where it is dark
    currency: str  # ISO 4217
    lines: tuple[DocumentLine, ...] = ()
    subtotal: str
    taxes: tuple[tuple[str, str], ...] = ()  # a row each: ("VAT 19%", "€661.71")
    legal: tuple[str, ...] = ()  # why no tax is charged, a sentence each
    total: str
    prepaid: tuple[tuple[str, str], ...] = ()  # what was paid of it before: ("Paid from wallet", "−€50.00")
    amount_due: str  # shown again below the total where the two differ
    due_label: str = "Amount due"
    notes: str = ""  # paragraphs, one a line
    draft: bool = False  # nothing is owed on it: says so across each page
    accent: str = ""  # the operator's color as #rrggbb; empty: our own
    logo: bytes = b""  # the operator's, as PNG; empty: our own mark
    language: str = "en"  # ISO 639; tells readers' software how to pronounce the text
