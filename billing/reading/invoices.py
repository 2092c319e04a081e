"""A tenant's invoices as it sees them: issued or void, never a draft, and how each stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from django.db import connection

from billing.collection import Balance, balance
from billing.models import Invoice, InvoiceDocument, InvoiceLine, InvoiceState, Payment
from billing.models.invoices import InvoiceQuerySet
from billing.reading import behind
from billing.reading.costs import per_currency
from billing.rules.money import Money
from portal.tenants.models import Tenant

PAGE = 24


@dataclass(frozen=True, slots=True)
class Standing:
    """An invoice and what is paid of it."""

    invoice: Invoice
    balance: Balance


@dataclass(frozen=True, slots=True)
class Open:
    """All that is to be paid, and the day on which the first of it is due."""

    sums: list[Money]
    count: int
    first_due: date | None


@dataclass(frozen=True, slots=True)
class Detail:
    """One invoice with everything on its page."""

    invoice: Invoice
    balance: Balance
    lines: list[InvoiceLine]  # by position
    jobs: dict[int, int]  # how many stand behind each line, by position
    payments: list[Payment]


def newest(tenant: Tenant, *, on: date, after: str = "", limit: int = PAGE) -> tuple[list[Standing], str]:
    """A page of invoices, the newest first, and the number behind which the next one begins, or ""."""
    last = _visible(tenant).filter(number=after).first() if after else None
    values = {
        "tenant": tenant.pk,
        "start": last.period_start if last else None,
        "id": last.pk if last else 0,
        "limit": limit + 1,
    }
    rows = list(Invoice.objects.raw(_NEWEST, values))
    more = rows[limit - 1].number or "" if len(rows) > limit else ""
    return [_standing(row, on) for row in rows[:limit]], more


def open_sums(tenant: Tenant) -> Open:
    """What is to be paid in all. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN, [tenant.pk])
        rows = cursor.fetchall()
    return Open(
        per_currency(Money.from_minor(int(unpaid), currency) for unpaid, currency, _ in rows),
        len(rows),
        min((due for *_, due in rows if due), default=None),
    )


_NEWEST = """
SELECT i.*, coalesce(p.received, 0) AS received
FROM billing_invoice i
LEFT JOIN LATERAL (SELECT sum(amount) AS received FROM billing_payment WHERE invoice_id = i.id) p ON true
WHERE i.tenant_id = %(tenant)s AND i.state IN ('issued', 'void')
  AND (%(start)s::timestamptz IS NULL OR (i.period_start, i.id) < (%(start)s::timestamptz, %(id)s))
ORDER BY i.period_start DESC, i.id DESC LIMIT %(limit)s
"""

_OPEN = """
SELECT i.total - coalesce(p.received, 0), i.currency, i.due_on
FROM billing_invoice i
LEFT JOIN LATERAL (SELECT sum(amount) AS received FROM billing_payment WHERE invoice_id = i.id) p ON true
WHERE i.tenant_id = %s AND i.state = 'issued' AND i.total > coalesce(p.received, 0)
"""


def get(tenant: Tenant, number: str) -> Invoice:
    """Raises Invoice.DoesNotExist, also for a draft."""
    return _visible(tenant).get(number=number)


def line(tenant: Tenant, number: str, position: int) -> InvoiceLine:
    """Raises InvoiceLine.DoesNotExist, also for a draft's."""
    found = InvoiceLine.objects.filter(tenant=tenant, invoice__in=_visible(tenant).filter(number=number))
    return found.select_related("invoice", "service_period").get(position=position)


def detail(tenant: Tenant, number: str, *, on: date) -> Detail:
    """Raises Invoice.DoesNotExist. Five queries."""
    invoice = get(tenant, number)
    payments = list(invoice.payments.order_by("received_on", "pk"))
    lines = list(invoice.lines.select_related("service_period").order_by("position"))
    paid = sum(payment.amount for payment in payments)
    return Detail(
        invoice, balance(invoice=invoice, on=on, paid=paid), lines, behind.counts(invoice, lines), payments
    )


def document(invoice: Invoice) -> bytes | None:
    """The PDF as it was sent; None while it is not rendered yet."""
    kept = InvoiceDocument.objects.filter(invoice=invoice).values_list("pdf", flat=True).first()
    return bytes(kept) if kept is not None else None


def _visible(tenant: Tenant) -> InvoiceQuerySet:
    found = Invoice.objects.filter(tenant=tenant)
    return found.filter(state__in=[InvoiceState.ISSUED, InvoiceState.VOID])


def _standing(invoice: Invoice, on: date) -> Standing:
    received = int(invoice.received)  # type: ignore[attr-defined]
    return Standing(invoice, balance(invoice=invoice, on=on, paid=received))
