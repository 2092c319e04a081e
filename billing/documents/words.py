"""What the template of the invoice says of its own, in English; `words` has it in the language of the document."""

from __future__ import annotations

from datetime import date

from babel.dates import format_date
from django.utils.translation import gettext, gettext_noop

from portal.languages import in_language
from portal.locales import locale

WORDS = (
    gettext_noop("{document}, continued"),
    gettext_noop("Page {page} of {pages}"),
    gettext_noop("DRAFT"),
    gettext_noop("The same document as an e-invoice, EN 16931"),
    gettext_noop("VAT ID {id}"),
    gettext_noop("Invoice date"),
    gettext_noop("Service period"),
    gettext_noop("Customer no."),
    gettext_noop("Your reference"),
    gettext_noop("Purchase order"),
    gettext_noop("Currency"),
    gettext_noop("Billed to"),
    gettext_noop("From"),
    gettext_noop("{label} by {day}"),
    gettext_noop("Service period {period}"),
    gettext_noop("Description"),
    gettext_noop("Project"),
    gettext_noop("Quantity"),
    gettext_noop("Unit price"),
    gettext_noop("Amount"),
    gettext_noop("Nothing was charged in this period."),
    gettext_noop("Subtotal"),
    gettext_noop("Total"),
    gettext_noop("Account holder"),
    gettext_noop("IBAN"),
    gettext_noop("BIC"),
    gettext_noop("Reference"),
    gettext_noop("QR code of the bank transfer, as the lines beside it say it"),
    gettext_noop("Payment by bank transfer"),
    gettext_noop("Scan to pay"),
)


def words(language: str) -> dict[str, str]:
    """By the English text."""
    with in_language(language):
        return {text: gettext(text) for text in WORDS}


def day_text(on: date, language: str) -> str:
    """`1 Apr 2026`, `01.04.2026`."""
    with in_language(language):
        return str(format_date(on, locale().day, locale=locale().name))
