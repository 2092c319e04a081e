"""A tenant's invoices as it sees them: issued or void, never a draft, and how each stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from django.db.models import Exists, F, Max, Min, OuterRef

from billing.models import (
    DocumentKind,
    Invoice,
    InvoiceBalance,
    InvoiceDocument,
    InvoiceLine,
    InvoiceState,
    InvoiceTax,
    LineKind,
    Notice,
    NoticeState,
    Payment,
    ServiceCredit,
    Voiding,
    WalletGrant,
)
from billing.models.invoices import InvoiceQuerySet
from billing.queries import line_usage
from billing.queries.costs import per_currency
from billing.receivables.settlement import Balance, Settlement, compute_balance
from billing.rules.money import Money
from billing.wallets import invoice_payments
from portal.core import pagination
from portal.core.tenants.models import Tenant
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "invoices.sql")

PAGE = 24
DOCUMENTS = 20  # PDFs that are in memory at once
LISTED = (
    *("kind", "state", "number", "tenant", "currency", "total", "prepaid"),
    *("period_start", "period_end", "timezone", "issued_on", "due_on"),
)
"""What a list shows of an invoice: the others are wide."""
OPEN = (Settlement.DUE, Settlement.PAST_DUE, Settlement.PROCESSING, Settlement.CHARGED_BACK)
"""An invoice of which something is to be paid."""
SENT = (NoticeState.SENT, NoticeState.SENDING)
"""Notices that went out: what is only kept here, its tenant never had."""


@dataclass(frozen=True, slots=True)
class ListedInvoice:
    """An invoice and what is paid of it."""

    invoice: Invoice
    balance: Balance

    @property
    def is_open(self) -> bool:
        return self.balance.settlement in OPEN


@dataclass(frozen=True, slots=True)
class Open:
    """All that is to be paid, and the day on which the first of it is due."""

    sums: list[Money]
    count: int
    processing: int  # of them, those of which a payment is under way
    first_due: date | None
    number: str = ""  # of one of which no payment is under way


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
    lines: Sequence[InvoiceLine]  # by position
    jobs: dict[int, int]  # how many stand behind each line, by position
    credited_jobs: dict[int, int]  # records of jobs whose hardware failed, by the position of their credit
    payments: list[Payment]
    taxes: list[InvoiceTax]  # the highest rate first
    notes: list[Invoice]  # the credit notes that take back from it
    voiding: Voiding | None
    replaced_by: Invoice | None
    drawn: list[tuple[WalletGrant, int]]  # what the wallet paid when it was issued, by grant
    evidence: str  # the digest of its manifest; "" before it is fixed
    einvoice: bool
    notices: list[Notice]  # that were written about it, the newest first


def newest(tenant: Tenant, *, on: date, after: str = "", size: int = 0) -> tuple[list[ListedInvoice], str]:
    """A page of `size` invoices, or of PAGE, the newest first, and the cursor of the next one. Two queries."""
    page = pagination.page(
        _listed().filter(tenant=tenant), "-period_start", "-id", after=after, size=size or PAGE
    )
    return with_balances(page.rows, on=on), page.next


def outstanding(tenant: Tenant, *, newest: int = 0) -> tuple[Open, OwedBack, list[Invoice]]:
    """All that is to be paid, all that is to be paid back, and so many of the newest with their balances. One query."""
    rows: list[Invoice] = []
    latest: list[Invoice] = []
    with prepared_cursor() as cursor:
        cursor.execute(sql.OUTSTANDING, {"tenant": tenant.pk, "newest": newest})
        for row, row.balance, is_newest in instances(cursor, Invoice, InvoiceBalance):
            latest += [row] if is_newest else []
            is_payable = row.state == InvoiceState.ISSUED and row.kind != DocumentKind.CREDIT_NOTE
            rows += [row] if is_payable and row.balance.left else []
    to_pay = [row for row in rows if row.balance.left > 0]
    back = [row for row in rows if row.balance.left < 0]
    resting = [row for row in to_pay if not row.balance.under_way]
    latest.sort(key=lambda row: (row.period_start, row.pk), reverse=True)
    return (
        Open(
            per_currency(Money.from_minor(row.balance.left, row.currency) for row in to_pay),
            len(to_pay),
            len(to_pay) - len(resting),
            min((row.due_on for row in resting if row.due_on), default=None),
            next((row.number or "" for row in resting), ""),
        ),
        OwedBack(
            per_currency(Money.from_minor(-row.balance.left, row.currency) for row in back),
            len(back),
            back[0].number or "" if back else "",
        ),
        latest,
    )


def with_balances(rows: Iterable[Invoice], *, on: date) -> list[ListedInvoice]:
    """Each with how it stands on that day; none has to be read."""
    return [ListedInvoice(row, compute_balance(invoice=row, on=on)) for row in rows]


# Made once for all tenants: that takes Django longer than to read them.
@cache
def _listed() -> InvoiceQuerySet:
    invoices = Invoice.objects.filter(state__in=[InvoiceState.ISSUED, InvoiceState.VOID])
    return invoices.with_balance().only(*LISTED)


def get(tenant: Tenant, number: str) -> Invoice:
    """Raises Invoice.DoesNotExist, also for a draft."""
    return _visible(tenant).get(number=number)


def line(tenant: Tenant, number: str, position: int) -> InvoiceLine:
    """Raises InvoiceLine.DoesNotExist, also for a draft's."""
    lines = InvoiceLine.objects.filter(tenant=tenant, invoice__in=_visible(tenant).filter(number=number))
    return lines.select_related("invoice", "service_period").get(position=position)


def detail(tenant: Tenant, number: str, *, on: date) -> Detail:
    """Raises Invoice.DoesNotExist. Ten queries at most, and seven more before its jobs are kept."""
    return _detail(_visible(tenant).filter(number=number), on=on, count_jobs=True)


def draft_detail(invoice: int, *, on: date) -> Detail:
    """Of a document that a close would issue, by its id, which exists in the transaction that drafts it alone.

    Its jobs are not counted, which would take months back whose rows stand in files.
    """
    return _detail(Invoice.objects.filter(pk=invoice), on=on, count_jobs=False)


def _detail(rows: InvoiceQuerySet, *, on: date, count_jobs: bool) -> Detail:
    einvoices = InvoiceDocument.objects.filter(invoice=OuterRef("pk"), einvoice__isnull=False)
    row: Any = (
        rows.select_related("balance", "original", "replaces")
        .annotate(digest=F("evidence__digest"), has_einvoice=Exists(einvoices))
        .get()
    )
    invoice: Invoice = row
    lines = list(
        invoice.lines.select_related("service_period")
        .annotate(kept_count=F("kept_jobs__jobs"))
        .order_by("position")
    )
    stored = {line.pk: line.kept_count for line in lines if line.kept_count is not None}
    is_void = invoice.state == InvoiceState.VOID
    return Detail(
        invoice,
        compute_balance(invoice=invoice, on=on),
        lines,
        line_usage.counts(invoice, lines, stored=stored) if count_jobs else {},
        _credited_jobs(lines),
        list(invoice.payments.order_by("received_on", "pk")),
        list(invoice.taxes.order_by("-rate", "category")),
        list(invoice.credit_notes.issued().order_by("pk")),
        Voiding.objects.filter(invoice=invoice).first() if is_void else None,
        invoice.replacements.exclude(number=None).order_by("pk").last() if is_void else None,
        invoice_payments.entries(invoice) if invoice.prepaid > 0 and not is_void else [],
        row.digest or "",
        row.digest is not None and row.has_einvoice,
        list(
            Notice.objects.filter(invoice=invoice, state__in=SENT).defer("text", "html").order_by("-sent_at")
        ),
    )


def _credited_jobs(lines: Sequence[InvoiceLine]) -> dict[int, int]:
    """By position the job whose hardware failed. One query; none without a line by hand."""
    added = {line.term_id: line.position for line in lines if line.kind == LineKind.MANUAL}
    rows = ServiceCredit.objects.filter(line__in=added) if added else ServiceCredit.objects.none()
    return {added[line]: record for line, record in rows.values_list("line", "record_id")}


def document(invoice: Invoice) -> bytes | None:
    """The PDF as it was sent; None while it is not rendered yet."""
    pdf = InvoiceDocument.objects.filter(invoice=invoice).values_list("pdf", flat=True).first()
    return bytes(pdf) if pdf is not None else None


def einvoice(invoice: Invoice) -> bytes | None:
    """The e-invoice as it was sent; None where there is none, or it is not rendered yet."""
    xml = InvoiceDocument.objects.filter(invoice=invoice).values_list("einvoice", flat=True).first()
    return bytes(xml) if xml is not None else None


def rendered(invoices: Sequence[Invoice]) -> Iterator[tuple[int, bytes, bytes | None]]:
    """(id, PDF, e-invoice or None) of those that are rendered, few at a time. One query."""
    rows = InvoiceDocument.objects.filter(invoice__in=invoices).values_list("invoice", "pdf", "einvoice")
    for pk, pdf, xml in rows.order_by("invoice").iterator(chunk_size=DOCUMENTS):
        yield pk, bytes(pdf), None if xml is None else bytes(xml)


def of_year(tenant: Tenant, year: int) -> InvoiceQuerySet:
    """Documents that were issued in the year, void ones too, by day and number."""
    return _visible(tenant).filter(issued_on__year=year).order_by("issued_on", "number")


def years(tenant: Tenant) -> tuple[int, int] | None:
    """The first and the last year in which a document was issued; None before the first. One query."""
    ends = _visible(tenant).aggregate(first=Min("issued_on"), last=Max("issued_on"))
    return (ends["first"].year, ends["last"].year) if ends["first"] is not None else None


def _visible(tenant: Tenant) -> InvoiceQuerySet:
    invoices = Invoice.objects.filter(tenant=tenant)
    return invoices.filter(state__in=[InvoiceState.ISSUED, InvoiceState.VOID])
