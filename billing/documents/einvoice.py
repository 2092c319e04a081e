"""An issued document as an e-invoice: EN 16931, in the syntax CII, as Factur-X and ZUGFeRD carry it.

Here its business terms are filled from the frozen rows; the typesetter's process writes the XML and checks
it against the schema. What the standard cannot say of a document is a sentence, and then there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from billing.documents.format import hours_text
from billing.documents.typesetting import NoAnswerError, TypesettingError, write_einvoice
from billing.models import DocumentKind, Invoice, InvoiceLine, InvoiceTax, TaxCategory
from billing.rules.en16931 import can_state, item
from billing.rules.money import Money
from billing.rules.period import last_day
from billing.rules.references import creditor_reference
from billing.vat_ids import names_its_country

PROFILE = "urn:cen.eu:en16931:2017"
INVOICE, CREDIT_NOTE = "380", "381"
HOUR, PIECE = "HUR", "C62"
TRANSFER, SEPA = "30", "58"
GIVEN_BACK = "This amount is given back; nothing is to be paid."
NOT_SUBJECT = TaxCategory.OUTSIDE
CODES = {
    TaxCategory.REVERSE_CHARGE: "VATEX-EU-AE",
    TaxCategory.EXPORT: "VATEX-EU-G",
    TaxCategory.OUTSIDE: "VATEX-EU-O",
}

Terms = dict[str, Any]
"""By the number of the business term: `BT-1` is the invoice's number."""


class EInvoiceError(Exception):
    """EN 16931 cannot state this document; the message says why, and what to do about the next one."""


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
        raise EInvoiceError(f"{invoice} is no valid e-invoice: {error}") from error


def terms_of(invoice: Invoice, lines: Sequence[InvoiceLine], taxes: Sequence[InvoiceTax]) -> Terms:
    """The business terms. A credit note states what it gives back above zero, as its type says it.

    Raises EInvoiceError.
    """
    if invoice.number is None or invoice.issued_on is None:
        raise EInvoiceError("A draft has no e-invoice; issue it first.")
    _refuse(invoice, lines, taxes)
    is_credit = invoice.kind == DocumentKind.CREDIT_NOTE
    sign = -1 if is_credit else 1
    start, end = _days(invoice.period_start, invoice.period_end, invoice.timezone)
    untaxed = any(row.category == NOT_SUBJECT for row in taxes)
    before = invoice.prepaid + invoice.from_credit
    terms: Terms = {
        "BT-1": invoice.number,
        "BT-2": invoice.issued_on.isoformat(),
        "BT-3": CREDIT_NOTE if is_credit else INVOICE,
        "BT-5": invoice.currency,
        "BT-13": clean(invoice.buyer["purchase_order"]),
        "BT-24": PROFILE,
        "BT-72": end,  # when it is supplied
        "BT-73": start,
        "BT-74": end,
        "BG-1": [{"BT-22": clean(invoice.reason)}] if invoice.reason else [],
        "BG-3": _preceding(invoice),
        "BG-4": _party(invoice.seller, untaxed=untaxed) | _registered(invoice.seller, untaxed=untaxed),
        "BG-7": _party(invoice.buyer, untaxed=untaxed) | {"identifiers": {"": invoice.buyer["slug"]}},
        "BG-23": [_tax(row, sign, invoice.currency) for row in taxes],
        "BG-25": [_line(line, sign, invoice) for line in lines],
        "BT-106": _money(sign * invoice.subtotal, invoice.currency),
        "BT-109": _money(sign * invoice.subtotal, invoice.currency),
        "BT-110": _money(sign * invoice.tax, invoice.currency),
        "BT-112": _money(sign * invoice.total, invoice.currency),
        "BT-113": _money(sign * before, invoice.currency) if before else "",
        "BT-115": _money(sign * invoice.asked, invoice.currency),
    }
    if is_credit:  # whose amount is above zero, so that BR-CO-25 wants a due date or terms of it too
        terms["BT-20"] = GIVEN_BACK
    elif invoice.due_on is not None:
        terms["BT-9"] = invoice.due_on.isoformat()
    return {key: value for key, value in (terms | _payment(invoice)).items() if value}


def clean(text: str) -> str:
    """On one line, without the characters that XML refuses."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _refuse(invoice: Invoice, lines: Sequence[InvoiceLine], taxes: Sequence[InvoiceTax]) -> None:
    seller, buyer = invoice.seller, invoice.buyer
    categories = {row.category for row in taxes}
    if not can_state(invoice.currency):
        raise EInvoiceError(f"EN 16931 has amounts of two decimals, and {invoice.currency} has more.")
    if not lines:
        raise EInvoiceError("EN 16931 has no invoice without a line.")
    for whose, party in (("seller", seller), ("tenant", buyer)):
        if not party.get("country"):
            raise EInvoiceError(f"The {whose} had no country when it was issued: give it a `country`.")
    if NOT_SUBJECT in categories and len(categories) > 1:
        raise EInvoiceError("EN 16931 allows nothing taxed beside what is outside the scope of tax.")
    has_vat_id = names_its_country(_compact(seller["vat_id"]))
    if not seller["registration"] and (NOT_SUBJECT in categories or not has_vat_id):
        raise EInvoiceError("The seller had no registration that it is known by: give it a `registration`.")
    if categories & {TaxCategory.EXPORT, TaxCategory.REVERSE_CHARGE} and not has_vat_id:
        raise EInvoiceError("The seller had no VAT id when it was issued: give it a `vat_id`.")
    if TaxCategory.REVERSE_CHARGE in categories and not buyer["vat_id"]:
        raise EInvoiceError("The tenant had no VAT id when it was issued: give it a `vat_id`.")


def _party(frozen: dict[str, str], *, untaxed: bool) -> Terms:
    """Name and address, as far as both parties have them alike. Where nothing is taxed, no VAT id may stand."""
    address = [line for line in map(clean, frozen["address"].splitlines()) if line]
    rows = dict(zip(("addr_l1", "addr_l2"), address, strict=False))
    vat_id = _compact(frozen["vat_id"])
    told = {
        "name": clean(frozen["name"]),
        **rows,
        "addr_l3": ", ".join(address[2:]),
        "country_code": frozen["country"],
        "country_subdivision": clean(frozen.get("region", "")),
        "einvoicing_addr": frozen["email"],
        "einvoicing_addr_schemeid": "EM",
        "vat_identifier": vat_id if names_its_country(vat_id) and not untaxed else "",
    }
    return {key: value for key, value in told.items() if value}


def _registered(seller: dict[str, str], *, untaxed: bool) -> Terms:
    """Where the seller is registered; instead of a VAT id its tax number, where it has one that is none."""
    vat_id = _compact(seller["vat_id"])
    number = "" if names_its_country(vat_id) else clean(seller["vat_id"] or seller["registration"])
    told = {
        "legal_identifier": clean(seller["registration"]),
        "tax_identifier": "" if untaxed else number,
    }
    return {key: value for key, value in told.items() if value}


def _preceding(invoice: Invoice) -> list[Terms]:
    found = [other for other in (invoice.original, invoice.replaces) if other is not None]
    return [{"BT-25": other.number, "BT-26": str(other.issued_on)} for other in found]


def _payment(invoice: Invoice) -> Terms:
    iban = _compact(invoice.seller["iban"])
    if invoice.kind == DocumentKind.CREDIT_NOTE or not iban:
        return {}
    return {
        "BT-81": SEPA if invoice.currency == "EUR" else TRANSFER,
        "BT-83": creditor_reference(invoice.number or "") or invoice.number,
        "BT-84": iban,
        "BT-85": clean(invoice.seller["name"]),
        "BT-86": _compact(invoice.seller["bic"]),
    }


def _tax(row: InvoiceTax, sign: int, currency: str) -> Terms:
    told: Terms = {
        "BT-116": _money(sign * row.net, currency),
        "BT-117": _money(sign * row.tax, currency),
        "BT-118": row.category,
        "BT-119": "" if row.category == NOT_SUBJECT else f"{row.rate.normalize():f}",
        "BT-120": clean(row.reason),
        "BT-121": CODES.get(TaxCategory(row.category), ""),
    }
    return {key: value for key, value in told.items() if value}


def _line(line: InvoiceLine, sign: int, invoice: Invoice) -> Terms:
    seconds = Fraction(int(line.seconds_num), line.seconds_den)
    amount = Money.from_minor(sign * line.amount, invoice.currency)
    stated = item(amount, resource_seconds=sign * seconds, unit_price=line.unit_price)
    service = line.service_period
    start, end = _days(service.start, service.end, service.timezone)
    hours = f"{hours_text(seconds)} {line.unit}s" if seconds and line.unit else ""
    told: Terms = {
        "BT-126": str(line.position),
        "BT-129": stated.quantity,
        "BT-130": HOUR if stated.in_hours else PIECE,
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
    return {key: value for key, value in told.items() if value}


def _days(start: datetime, end: datetime, timezone: str) -> tuple[str, str]:
    """The first and the last day of a period, in its zone."""
    zone = ZoneInfo(timezone)
    return start.astimezone(zone).date().isoformat(), last_day(end, zone=zone).isoformat()


def _money(minor: int, currency: str) -> str:
    return Money.from_minor(minor, currency).text


def _compact(text: str) -> str:
    return "".join(each for each in text.upper() if each.isalnum())
