"""How e-mails write days, amounts, names, addresses of pages and where to transfer money to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from babel.dates import format_date
from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.models import Invoice, Seller
from billing.rules.formatting import money_text
from billing.rules.money import Money
from billing.rules.references import creditor_reference, in_groups
from portal.core.tenants.brand import current_brand
from portal.locales import locale


def page_url(page: str, *names: object) -> str:
    """Of a page of ours; "" where nobody has said under which address people reach us."""
    return f"{settings.PORTAL_URL}{reverse(page, args=names)}" if settings.PORTAL_URL else ""


def one_line(text: str) -> str:
    """As one line, whatever is in it: a name neither begins a paragraph nor another header."""
    return " ".join(text.split())


def load_seller_name() -> str:
    """The seller as it is called now, or the brand where none is entered. One query."""
    seller = Seller.objects.order_by("pk").first()
    return one_line(seller.name) if seller else current_brand().name


def format_day(on: date) -> str:
    """`3 March 2026`"""
    return str(format_date(on, locale().written_day, locale=locale().name))


def format_sums(amounts: Iterable[Money]) -> str:
    """By currency: `$12.00`, `$12.00 + €3.00`."""
    sums: dict[str, Money] = {}
    for amount in amounts:
        sums[amount.currency] = sums.get(amount.currency, Money.zero(amount.currency)) + amount
    return " + ".join(money_text(amount) for amount in sums.values())


def load_transfer_details(invoice: Invoice) -> list[tuple[str, str]]:
    """Where an invoice is transferred to, and under which reference; nothing without a bank account."""
    if not invoice.seller.get("iban"):
        return []
    number = invoice.number or ""
    reference = creditor_reference(number)
    return [
        (_("By transfer to"), in_groups(invoice.seller["iban"].replace(" ", "").upper())),
        (_("Reference"), in_groups(reference) if reference else number),
    ]
