"""An issued document as an e-invoice: EN 16931, in the syntax CII, as Factur-X and ZUGFeRD carry it.

For a buyer with a reference it is an XRechnung 3.0, which is EN 16931 with more that has to be said. Here its
business terms are filled from the frozen rows; the typesetter's process writes the XML and checks it against the
schema. What the standard cannot say of a document is a sentence, and then there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from stdnum import iban as ibans

from billing.documents import xrechnung
from billing.documents.messages import SENTENCES
from billing.documents.typesetting import NoAnswerError, TypesettingError, write_einvoice
from billing.documents.vat_ids import names_its_country
from billing.models import DocumentKind, Invoice, InvoiceLine, InvoiceTax, TaxCategory
from billing.rules.en16931 import can_state, item
from billing.rules.formatting import hours_text
from billing.rules.meters import plural
from billing.rules.money import Money
from billing.rules.period import last_day
from billing.rules.references import creditor_reference
from portal.core.tenants.electronic_address import parted
from portal.errors import CodedError

PROFILE = "urn:cen.eu:en16931:2017"
PROCESS = "urn:fdc:peppol.eu:2017:poacc:billing:01:1.0"  # an invoice for what was supplied, by Peppol's name
INVOICE, CREDIT_NOTE = "380", "381"
HOUR, PIECE = "HUR", "C62"
TRANSFER, SEPA, ONLINE, UNDEFINED = "30", "58", "68", "1"  # of the code list UNTDID 4461
GIVEN_BACK = "This amount is given back; nothing is to be paid."
NOT_SUBJECT = TaxCategory.OUTSIDE
CODES = {
    TaxCategory.REVERSE_CHARGE: "VATEX-EU-AE",
    TaxCategory.EXPORT: "VATEX-EU-G",
    TaxCategory.OUTSIDE: "VATEX-EU-O",
}

Terms = dict[str, Any]
"""By the number of the business term: `BT-1` is the invoice's number."""


class EInvoiceError(CodedError):
    """EN 16931 cannot state this document; its sentence says why, and what to do about the next one."""

    sentences = SENTENCES


def xml(invoice: Invoice) -> bytes:
    """The e-invoice of an issued document, valid by the schema. Three queries. The same document gives the same bytes.

    Raises EInvoiceError, which is kept beside the document, and NoAnswerError, after which it is asked for again.
    """
    lines = list(invoice.lines.select_related("service_period").order_by("position"))
    terms = terms_of(invoice, lines, list(invoice.taxes.order_by("-rate", "category")))
    try:
        return write_einvoice(terms)
    except NoAnswerError:
        raise
    except TypesettingError as error:
        raise EInvoiceError("einvoice-invalid", invoice=invoice, reason=error) from error


def terms_of(invoice: Invoice, lines: Sequence[InvoiceLine], taxes: Sequence[InvoiceTax]) -> Terms:
    """The business terms. A credit note states what it gives back above zero, as its type says it.

    Raises EInvoiceError.
    """
    if invoice.number is None or invoice.issued_on is None:
        raise EInvoiceError("einvoice-of-draft")
    _refuse(invoice, lines, taxes)
    is_credit = invoice.kind == DocumentKind.CREDIT_NOTE
    sign = -1 if is_credit else 1
    _, end = _days(invoice.period_start, invoice.period_end, invoice.timezone)
    first, last = _span(invoice, lines)
    untaxed = any(row.category == NOT_SUBJECT for row in taxes)
    before = invoice.prepaid + invoice.from_credit
    terms: Terms = {
        "BT-1": invoice.number,
        "BT-2": invoice.issued_on.isoformat(),
        "BT-3": CREDIT_NOTE if is_credit else INVOICE,
        "BT-5": invoice.currency,
        "BT-10": clean(invoice.buyer.get("buyer_reference", "")),
        "BT-13": clean(invoice.buyer["purchase_order"]),
        "BT-23": PROCESS,
        "BT-24": specification(invoice),
        "BT-72": end,  # when it is supplied
        "BT-73": first,
        "BT-74": last,
        "BG-1": [{"BT-22": clean(invoice.reason)}] if invoice.reason else [],
        "BG-3": _preceding(invoice),
        "BG-4": _party(invoice.seller, untaxed=untaxed) | _of_seller(invoice.seller, untaxed=untaxed),
        "BG-7": _party(invoice.buyer, untaxed=untaxed) | {"identifiers": {"": invoice.buyer["slug"]}},
        "BG-23": [_tax(row, sign, invoice.currency) for row in taxes],
        "BG-25": [_line(line, sign, invoice) for line in lines],
        "BT-106": _money(sign * invoice.subtotal, invoice.currency),
        "BT-109": _money(sign * invoice.subtotal, invoice.currency),
        "BT-110": _money(sign * invoice.tax, invoice.currency),
        "BT-112": _money(sign * invoice.total, invoice.currency),
        "BT-113": _money(sign * before, invoice.currency) if before else "",
        "BT-115": _money(sign * invoice.amount_requested, invoice.currency),
    }
    if is_credit:  # whose amount is above zero, so that BR-CO-25 wants a due date or terms of it too
        terms["BT-20"] = GIVEN_BACK
    elif invoice.due_on is not None:
        terms["BT-9"] = invoice.due_on.isoformat()
    return {key: value for key, value in (terms | _payment(invoice)).items() if value}


def specification(invoice: Invoice) -> str:
    """What it follows (BT-24): XRechnung where its buyer is to have one, and nothing is missing for it."""
    is_xrechnung = xrechnung.applies(invoice.buyer) and not xrechnung.missing(invoice.seller, invoice.buyer)
    return xrechnung.SPECIFICATION if is_xrechnung else PROFILE


def clean(text: str) -> str:
    """On one line, without the characters that XML refuses."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _refuse(invoice: Invoice, lines: Sequence[InvoiceLine], taxes: Sequence[InvoiceTax]) -> None:
    seller, buyer = invoice.seller, invoice.buyer
    categories = {row.category for row in taxes}
    if not can_state(invoice.currency):
        raise EInvoiceError("einvoice-currency", currency=invoice.currency)
    if not lines:
        raise EInvoiceError("einvoice-without-line")
    for whose, party in (("seller", seller), ("tenant", buyer)):
        if not party.get("country"):
            raise EInvoiceError(f"{whose}-without-country")
    if NOT_SUBJECT in categories and len(categories) > 1:
        raise EInvoiceError("einvoice-outside-scope")
    has_vat_id = names_its_country(_compact(seller["vat_id"]))
    if not seller["registration"] and (NOT_SUBJECT in categories or not has_vat_id):
        raise EInvoiceError("seller-without-registration")
    if categories & {TaxCategory.EXPORT, TaxCategory.REVERSE_CHARGE} and not has_vat_id:
        raise EInvoiceError("seller-without-vat-id")
    if TaxCategory.REVERSE_CHARGE in categories and not buyer["vat_id"]:
        raise EInvoiceError("tenant-without-vat-id")


def _party(frozen: dict[str, str], *, untaxed: bool) -> Terms:
    """Name and address, as far as both parties have them alike. Where nothing is taxed, no VAT id may stand."""
    address = [line for line in map(clean, frozen["address"].splitlines()) if line]
    rows = dict(zip(("addr_l1", "addr_l2"), address, strict=False))
    vat_id = _compact(frozen["vat_id"])
    scheme, electronic = parted(frozen.get("electronic_address", ""), frozen["email"])
    terms = {
        "name": clean(frozen["name"]),
        **rows,
        "addr_l3": ", ".join(address[2:]),
        "city": clean(frozen.get("city", "")),
        "postcode": clean(frozen.get("postcode", "")),
        "country_code": frozen["country"],
        "country_subdivision": clean(frozen.get("region", "")),
        "einvoicing_addr": electronic,
        "einvoicing_addr_schemeid": scheme,
        "vat_identifier": vat_id if names_its_country(vat_id) and not untaxed else "",
    }
    return {key: value for key, value in terms.items() if value}


def _of_seller(seller: dict[str, str], *, untaxed: bool) -> Terms:
    """Who answers questions, and where it is registered; instead of a VAT id its tax number, where that is none."""
    vat_id = _compact(seller["vat_id"])
    number = "" if names_its_country(vat_id) else clean(seller["vat_id"] or seller["registration"])
    contact = {
        "name": clean(seller.get("contact_name", "")),
        "phone": clean(seller.get("contact_phone", "")),
        "email": seller["email"],
    }
    terms: Terms = {
        "contacts": [contact] if contact["name"] or contact["phone"] else [],
        "legal_identifier": clean(seller["registration"]),
        "tax_identifier": "" if untaxed else number,
    }
    return {key: value for key, value in terms.items() if value}


def _preceding(invoice: Invoice) -> list[Terms]:
    invoices = [other for other in (invoice.original, invoice.replaces) if other is not None]
    return [{"BT-25": other.number, "BT-26": str(other.issued_on)} for other in invoices]


def _payment(invoice: Invoice) -> Terms:
    """By which means it is paid: nobody is to transfer a credit note to the seller, however it is given back."""
    iban = _compact(invoice.seller["iban"])
    if invoice.kind == DocumentKind.CREDIT_NOTE:
        return {"BT-81": UNDEFINED}
    if not iban:
        return {"BT-81": ONLINE}
    return {
        "BT-81": SEPA if invoice.currency == "EUR" and ibans.is_valid(iban) else TRANSFER,
        "BT-83": creditor_reference(invoice.number or "") or invoice.number,
        "BT-84": iban,
        "BT-85": clean(invoice.seller["name"]),
        "BT-86": _compact(invoice.seller["bic"]),
    }


def _tax(row: InvoiceTax, sign: int, currency: str) -> Terms:
    terms: Terms = {
        "BT-116": _money(sign * row.net, currency),
        "BT-117": _money(sign * row.tax, currency),
        "BT-118": row.category,
        "BT-119": "0" if row.category == NOT_SUBJECT else f"{row.rate.normalize():f}",
        "BT-120": clean(row.reason),
        "BT-121": CODES.get(TaxCategory(row.category), ""),
    }
    return {key: value for key, value in terms.items() if value}


def _line(line: InvoiceLine, sign: int, invoice: Invoice) -> Terms:
    seconds = Fraction(int(line.seconds_num), line.seconds_den)
    amount = Money.from_minor(sign * line.amount, invoice.currency)
    stated = item(amount, resource_seconds=sign * seconds, unit_price=line.unit_price)
    service = line.service_period
    start, end = _days(service.start, service.end, service.timezone)
    hours = f"{hours_text(seconds)} {plural(line.unit)}" if seconds and line.unit else ""
    terms: Terms = {
        "BT-126": str(line.position),
        "BT-129": stated.quantity,
        "BT-130": (line.unit_code or HOUR) if stated.in_hours else PIECE,
        "BT-131": amount.text,
        "BT-134": start,
        "BT-135": end,
        "BT-146": stated.price,
        "BT-149": stated.base if stated.base != "1" else "",
        "BT-151": line.tax_category,
        "BT-152": "" if line.tax_category == NOT_SUBJECT else f"{line.tax_rate.normalize():f}",
        "BT-153": clean(line.description) or "Use",
        "BT-154": ", ".join(filter(None, (clean(line.project), hours))),
    }
    return {key: value for key, value in terms.items() if value}


def _span(invoice: Invoice, lines: Sequence[InvoiceLine]) -> tuple[str, str]:
    """The first and the last day that it bills: its own period, and those of lines that are of another one.

    Such lines are corrections, and fees in advance; rules R110 and R111 want every line's period within this one.
    """
    periods = {(invoice.period_start, invoice.period_end, invoice.timezone)} | {
        (line.service_period.start, line.service_period.end, line.service_period.timezone) for line in lines
    }
    days = [_days(*period) for period in periods]
    return min(first for first, _ in days), max(last for _, last in days)


def _days(start: datetime, end: datetime, timezone: str) -> tuple[str, str]:
    """The first and the last day of a period, in its zone."""
    zone = ZoneInfo(timezone)
    return start.astimezone(zone).date().isoformat(), last_day(end, zone=zone).isoformat()


def _money(minor: int, currency: str) -> str:
    return Money.from_minor(minor, currency).text


def _compact(text: str) -> str:
    return "".join(each for each in text.upper() if each.isalnum())
