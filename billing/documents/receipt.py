"""What the receipt of a payment shows: plain values, formatted by whoever builds it."""

from dataclasses import dataclass
from datetime import date

from billing.documents.invoice import Party


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """One payment, or what was paid back of one."""

    kind: str  # "Receipt"
    number: str  # of the invoice that it is for; without one what it was kept as
    on: date  # also the creation date of the file, so that the same payment is the same bytes
    seller: Party
    buyer: Party
    payer_label: str  # heads the buyer
    seller_label: str
    amount_label: str
    amount: str
    facts: tuple[tuple[str, str], ...]  # ("Paid by", "Visa ending in 4242")
    note: str
    accent: str = ""  # the operator's color as #rrggbb; empty: our own
    logo: bytes = b""  # the operator's, as PNG; empty: our own mark
    language: str = "en"  # ISO 639
