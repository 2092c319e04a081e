"""A receipt of each payment on a statement of account, as PDF: they add up to its payments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.documents.build import party_of
from billing.documents.invoice import Party
from billing.documents.parties import buyer_fields, seller_fields
from billing.documents.receipt import Receipt
from billing.emails.document_text import payment_method_text
from billing.models import Invoice, PaymentAttempt, Seller
from billing.reports.account_statement import AccountStatement, StatementRow
from billing.rules.formatting import money_text
from billing.rules.money import Money
from portal.core.tenants.brand import current_brand, frozen_brand, load_logo
from portal.core.tenants.models import Tenant
from portal.languages import in_language, written_day

TITLES: Mapping[str, str] = {
    "payment": gettext_noop("Receipt"),
    "credit-balance-received": gettext_noop("Receipt"),
    "credit-balance-paid-back": gettext_noop("Paid back"),
    "credit-balance-withdrawn": gettext_noop("Credit taken back"),
}
"""Events of a statement in which money came or went."""


@dataclass(frozen=True, slots=True)
class NamedReceipt:
    """`name`: of its file, `2026-05-04-INV-2026-0001`; one of a statement alone has it."""

    name: str
    amount: Money  # below zero: paid back
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class _Sources:
    invoices: Mapping[str, Invoice]
    cards: Mapping[str, str]  # by the reference of the payment
    seller: Party
    buyer: Party
    brand: Mapping[str, str]


def payments_of(statements: Iterable[AccountStatement]) -> list[tuple[StatementRow, str]]:
    """The rows in which money came or went, with their currency."""
    return [(row, one.currency) for one in statements for row in one.rows if row.event in TITLES]


def load_receipts(tenant: Tenant, statements: Iterable[AccountStatement]) -> list[NamedReceipt]:
    """In the order of the statements, in the tenant's language. Five queries, and one for each logo.

    Parties and look are those of the invoice that was paid; of money that was kept as credit, those of today.
    """
    rows = payments_of(statements)
    with in_language(tenant.language):
        sources = _sources(tenant, [row for row, _currency in rows])
        logos: dict[str, bytes] = {}
        return list(_named(tenant, rows, sources, logos))


def _sources(tenant: Tenant, rows: list[StatementRow]) -> _Sources:
    numbers = {row.document for row in rows if row.document}
    invoices = Invoice.objects.filter(tenant=tenant, number__in=numbers)
    references = {row.description for row in rows}
    attempts = PaymentAttempt.objects.filter(tenant=tenant, external_id__in=references)
    seller = Seller.objects.order_by("pk").first()
    return _Sources(
        {f"{invoice.number}": invoice for invoice in invoices},
        {f"{one.external_id}": payment_method_text(one) for one in attempts.select_related("method")},
        party_of(seller_fields(seller)) if seller else Party(name=current_brand().name),
        party_of(buyer_fields(tenant)),
        frozen_brand().get("brand", {}),
    )


def _named(
    tenant: Tenant, rows: list[tuple[StatementRow, str]], sources: _Sources, logos: dict[str, bytes]
) -> Iterator[NamedReceipt]:
    taken: dict[str, int] = {}
    for row, currency in rows:
        invoice = sources.invoices.get(row.document)
        brand = invoice.terms.get("brand", {}) if invoice else sources.brand
        digest = brand.get("logo", "")
        if digest not in logos:
            logos[digest] = load_logo(digest)
        name = f"{row.on}-{row.document or 'credit-balance'}".replace("/", "-")
        taken[name] = taken.get(name, 0) + 1
        amount = Money.from_minor(row.payment, currency)
        is_received = amount.minor > 0
        receipt = Receipt(
            kind=_(TITLES[row.event]) if is_received or row.event != "payment" else _("Paid back"),
            number=row.document,
            on=row.on,
            seller=party_of(invoice.seller) if invoice else sources.seller,
            buyer=party_of(invoice.buyer) if invoice else sources.buyer,
            payer_label=_("From") if is_received else _("To"),
            seller_label=_("To") if is_received else _("From"),
            amount_label=_("Amount received") if is_received else _("Amount paid back"),
            amount=money_text(amount if is_received else -amount),
            facts=tuple(_facts(row, sources.cards.get(row.description, ""), is_received=is_received)),
            note=_("A receipt is no invoice: taxes are stated on the invoice."),
            accent=brand.get("color", ""),
            logo=logos[digest],
            language=tenant.language,
        )
        yield NamedReceipt(name if taken[name] == 1 else f"{name}-{taken[name]}", amount, receipt)


def _facts(row: StatementRow, card: str, *, is_received: bool) -> Iterator[tuple[str, str]]:
    yield _("Received on") if is_received else _("Paid back on"), written_day(row.on)
    if card:
        yield _("Paid by"), card
    yield _("For invoice"), row.document or _("none: kept as your credit")
    if row.description and not card:
        yield _("Reference"), row.description
