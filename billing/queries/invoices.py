"""A tenant's invoices as it sees them: issued or void, never a draft, and how each stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet, Sum

from billing.models import (
    Evidence,
    Invoice,
    InvoiceDocument,
    InvoiceLine,
    InvoiceState,
    InvoiceTax,
    Notice,
    NoticeState,
    Payment,
    Voiding,
    WalletGrant,
)
from billing.models.invoices import InvoiceQuerySet
from billing.queries import line_usage
from billing.queries.costs import per_currency
from billing.receivables import invoice_balances
from billing.receivables.settlement import Balance, standing
from billing.rules.money import Money
from billing.wallets import invoice_payments
from portal.core.tenants.asking import Ask, Rows, of_tenant
from portal.core.tenants.models import Tenant

PAGE = 24
TOLD = (NoticeState.SENT, NoticeState.SENDING)
"""Notices that went out: what is only kept here, its tenant never had."""


@dataclass(frozen=True, slots=True)
class ListedInvoice:
    """An invoice and what is paid of it."""

    invoice: Invoice
    balance: Balance


@dataclass(frozen=True, slots=True)
class Open:
    """All that is to be paid, and the day on which the first of it is due."""

    sums: list[Money]
    count: int
    processing: int  # of them, those of which a payment is under way
    first_due: date | None


@dataclass(frozen=True, slots=True)
class OwedBack:
    """All that the tenant is owed, of how many invoices, and the number of one of them."""

    sums: list[Money]
    count: int
    number: str


@dataclass(frozen=True, slots=True)
class Detail:
    """One invoice with everything on its page."""

    invoice: Invoice
    balance: Balance
    lines: list[InvoiceLine]  # by position
    jobs: dict[int, int]  # how many stand behind each line, by position
    payments: list[Payment]
    taxes: list[InvoiceTax]  # the highest rate first
    notes: list[Invoice]  # the credit notes that take back from it
    voiding: Voiding | None
    replaced_by: Invoice | None
    drawn: list[tuple[WalletGrant, int]]  # what the wallet paid when it was issued, by grant
    evidence: str  # the digest of its manifest; "" before it is fixed
    einvoice: bool
    notices: list[Notice]  # that were written about it, the newest first


def newest(tenant: Tenant, *, on: date, after: str = "") -> tuple[list[ListedInvoice], str]:
    """A page of invoices, the newest first, and the number behind which the next one begins, or ""."""
    last = _visible(tenant).filter(number=after).first() if after else None
    if last is None:
        rows = ask_newest(tenant, on=on, limit=PAGE + 1).asked()
    else:
        older_invoices = _visible(tenant).filter(period_start__lte=last.period_start)
        older_invoices = older_invoices.filter(Q(period_start__lt=last.period_start) | Q(pk__lt=last.pk))
        invoices = invoice_balances.with_sums(older_invoices).order_by("-period_start", "-pk")[: PAGE + 1]
        rows = [ListedInvoice(invoice, standing(invoice=invoice, on=on)) for invoice in invoices]
    return rows[:PAGE], rows[PAGE - 1].invoice.number or "" if len(rows) > PAGE else ""


def ask_newest(tenant: Tenant, *, on: date, limit: int) -> Ask[list[ListedInvoice]]:
    """The newest first, as a list shows them: what an invoice has besides is read when it is asked for."""

    def made(rows: Rows) -> list[ListedInvoice]:
        invoices = []
        for row in rows:
            invoice: Any = Invoice.from_db(DEFAULT_DB_ALIAS, _LISTED, row[: len(_LISTED)])
            for name, value in zip(_SUMS, row[len(_LISTED) :], strict=True):
                setattr(invoice, name, value)
            invoices.append(ListedInvoice(invoice, standing(invoice=invoice, on=on)))
        return invoices

    return Ask(f"{_newest_of()} LIMIT %(limit)s", {"tenant": tenant.pk, "limit": limit}, made, kept=True)


_SHOWN = {
    *("id", "kind", "state", "number", "tenant_id", "currency", "total", "prepaid"),
    *("period_start", "period_end", "timezone", "issued_on", "due_on"),
}
_LISTED = [field.attname for field in Invoice._meta.concrete_fields if field.attname in _SHOWN]
_SUMS = list(invoice_balances.Sums.__annotations__)


@of_tenant
def _newest_of(tenant: int) -> QuerySet[Any, Any]:
    invoices = invoice_balances.with_sums(_visible(tenant)).order_by("-period_start", "-pk")
    return invoices.values_list(*_LISTED, *_SUMS)


def open_sums(tenant: Tenant) -> Open:
    """What is to be paid in all. One query."""
    return ask_open(tenant).asked()


def ask_open(tenant: Tenant) -> Ask[Open]:
    return Ask(_open_of(), {"tenant": tenant.pk}, _open, kept=True)


@of_tenant
def _open_of(tenant: int) -> QuerySet[Any, Any]:
    invoices = invoice_balances.with_left(Invoice.objects.filter(tenant=tenant)).filter(left__gt=0).order_by()
    processing, waits = Exists(invoice_balances.under_way()), ~Exists(invoice_balances.under_way())
    return invoices.values_list("currency").annotate(
        Sum("left"), Count("pk"), processing=Count("pk", filter=processing), first=Min("due_on", filter=waits)
    )


def _open(rows: Rows) -> Open:
    """In all currencies: a row has the sum of one, how many invoices have it, of how many a payment is under way, and
    the first day on which another one is due.
    """
    return Open(
        per_currency(Money.from_minor(int(left), currency) for currency, left, *_ in rows),
        sum(count for _, _, count, *_ in rows),
        sum(processing for *_, processing, _ in rows),
        min((due for *_, due in rows if due), default=None),
    )


def ask_owed_back(tenant: Tenant) -> Ask[OwedBack]:
    return Ask(_owed_back_of(), {"tenant": tenant.pk}, _owed_back, kept=True)


@of_tenant
def _owed_back_of(tenant: int) -> QuerySet[Any, Any]:
    invoices = invoice_balances.with_left(Invoice.objects.filter(tenant=tenant)).filter(left__lt=0).order_by()
    return invoices.values_list("currency").annotate(Sum("left"), Count("pk"), Min("number"))


def _owed_back(rows: Rows) -> OwedBack:
    return OwedBack(
        per_currency(Money.from_minor(-int(left), currency) for currency, left, *_ in rows),
        sum(count for _, _, count, _ in rows),
        min((number for *_, number in rows), default=""),
    )


def get(tenant: Tenant, number: str) -> Invoice:
    """Raises Invoice.DoesNotExist, also for a draft."""
    return _visible(tenant).get(number=number)


def line(tenant: Tenant, number: str, position: int) -> InvoiceLine:
    """Raises InvoiceLine.DoesNotExist, also for a draft's."""
    lines = InvoiceLine.objects.filter(tenant=tenant, invoice__in=_visible(tenant).filter(number=number))
    return lines.select_related("invoice", "service_period").get(position=position)


def detail(tenant: Tenant, number: str, *, on: date) -> Detail:
    """Raises Invoice.DoesNotExist. Eleven queries at most."""
    return _detail(_visible(tenant).filter(number=number), on=on)


def draft_detail(invoice: int, *, on: date) -> Detail:
    """Of a document that a close would issue, by its id, which exists in the transaction that drafts it alone."""
    return _detail(Invoice.objects.filter(pk=invoice), on=on)


def _detail(rows: InvoiceQuerySet, *, on: date) -> Detail:
    invoice = invoice_balances.with_sums(rows.select_related("original", "replaces")).get()
    lines = list(invoice.lines.select_related("service_period").order_by("position"))
    is_void = invoice.state == InvoiceState.VOID
    einvoices = InvoiceDocument.objects.filter(invoice=OuterRef("invoice"), einvoice__isnull=False)
    fixed = Evidence.objects.filter(invoice=invoice).values_list("digest", Exists(einvoices)).first()
    digest, has_einvoice = fixed or ("", False)
    return Detail(
        invoice,
        standing(invoice=invoice, on=on),
        lines,
        line_usage.counts(invoice, lines),
        list(invoice.payments.order_by("received_on", "pk")),
        list(invoice.taxes.order_by("-rate", "category")),
        list(invoice.credit_notes.issued().order_by("pk")),
        Voiding.objects.filter(invoice=invoice).first() if is_void else None,
        invoice.replacements.exclude(number=None).order_by("pk").last() if is_void else None,
        invoice_payments.entries(invoice) if invoice.prepaid > 0 and not is_void else [],
        digest,
        has_einvoice,
        list(
            Notice.objects.filter(invoice=invoice, state__in=TOLD).defer("text", "html").order_by("-sent_at")
        ),
    )


def document(invoice: Invoice) -> bytes | None:
    """The PDF as it was sent; None while it is not rendered yet."""
    pdf = InvoiceDocument.objects.filter(invoice=invoice).values_list("pdf", flat=True).first()
    return bytes(pdf) if pdf is not None else None


def einvoice(invoice: Invoice) -> bytes | None:
    """The e-invoice as it was sent; None where there is none, or it is not rendered yet."""
    xml = InvoiceDocument.objects.filter(invoice=invoice).values_list("einvoice", flat=True).first()
    return bytes(xml) if xml is not None else None


def _visible(tenant: Tenant | int) -> InvoiceQuerySet:
    invoices = Invoice.objects.filter(tenant=tenant)
    return invoices.filter(state__in=[InvoiceState.ISSUED, InvoiceState.VOID])
