"""Drafting and issuing invoices. Numbers are gapless; what is issued never changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

from django.db import connection, transaction

from billing.catalog.tenant_lock import lock, lock_tenants
from billing.invoicing.messages import SENTENCES
from billing.models import (
    MOVES,
    BillingPeriod,
    DocumentKind,
    Invoice,
    InvoiceState,
)
from billing.notifications import issue_notices
from billing.receivables import credit_balance, invoice_events
from billing.wallets import invoice_payments
from portal.core.outbox import outbox
from portal.core.tenants.brand import frozen_brand
from portal.core.tenants.models import Tenant
from portal.errors import CodedError

__all__ = [
    "InvoicingError",
    "discard_draft",
    "issue_invoices",
    "load_current_invoices",
    "lock",
    "lock_tenants",
]


class InvoicingError(CodedError):
    """An invoice cannot be made or moved so; the message says why and what to do."""

    sentences = SENTENCES


def load_current_invoices(periods: Sequence[BillingPeriod]) -> dict[int, Invoice]:
    """By period its draft or issued invoice, where there is one."""
    invoices = Invoice.objects.of_periods().filter(period__in=periods).exclude(state=InvoiceState.VOID)
    return {invoice.period_id: invoice for invoice in invoices}


def issue_invoices(drafts: Sequence[tuple[Tenant, Invoice, date]], *, moment: datetime | None = None) -> None:
    """Give drafts their numbers, in that order, and freeze them; for a caller that holds their tenants' locks.

    They keep the operator's color and logo. Their documents are rendered after the commit, by way of the outbox, and
    then e-mailed. `moment` is when wallets pay what they can of them; None: at the beginning of their days. Raises
    InvoicingError for a negative total, which only a credit note may state, and for what is no draft.
    """
    if not drafts:
        return
    for _, invoice, _ in drafts:
        if InvoiceState.ISSUED not in MOVES[InvoiceState(invoice.state)]:
            raise InvoicingError("not-issuable", invoice=invoice, state=invoice.state)
        if invoice.total < 0 and invoice.kind != DocumentKind.CREDIT_NOTE:
            raise InvoicingError("invoice-below-zero")
    brand = frozen_brand()
    numbers = _next_numbers([(_prefix(invoice), on) for _, invoice, on in drafts])
    for (tenant, invoice, on), number in zip(drafts, numbers, strict=True):
        invoice.number = number
        days = 0 if invoice.kind == DocumentKind.CREDIT_NOTE else tenant.payment_terms_days
        invoice.issued_on, invoice.due_on = on, on + timedelta(days=days)
        invoice.state = InvoiceState.ISSUED
        invoice.terms = invoice.terms | brand
    issued = [invoice for _, invoice, _ in drafts]
    invoice_payments.settle_invoices(issued, moment=moment)
    credit_balance.promise_credit(issued, at=moment)
    with connection.cursor() as cursor:
        cursor.execute(
            _ISSUE,
            [
                InvoiceState.ISSUED.value,
                [invoice.pk for invoice in issued],
                [invoice.number for invoice in issued],
                [invoice.issued_on for invoice in issued],
                [invoice.due_on for invoice in issued],
                [json.dumps(invoice.terms) for invoice in issued],
            ],
        )
    invoice_events.record_issued(issued)
    credit_balance.settle_promises(issued, at=moment)
    outbox.add_many("billing.tasks.render_document", [{"invoice_id": invoice.pk} for invoice in issued])
    issue_notices.announce_documents(issued, moment=moment)


@transaction.atomic
def discard_draft(*, invoice: Invoice) -> None:
    """Drop a draft; it never had a number, so the series has no gap. The database refuses an issued one."""
    invoice.taxes.all().delete()
    invoice.lines.all().delete()
    invoice.delete()


def _prefix(invoice: Invoice) -> str:
    """What the document's number begins with."""
    prefix: str = invoice.seller[
        "credit_prefix" if invoice.kind == DocumentKind.CREDIT_NOTE else "invoice_prefix"
    ]
    return prefix


def _next_numbers(series: Sequence[tuple[str, date]]) -> list[str]:
    """The next number of each prefix's series for that year: 'INV-2026-0001'. Holds the series' locks."""
    names = [f"{prefix}-{on.year}" for prefix, on in series]
    left: dict[str, Iterator[int]] = {}
    with connection.cursor() as cursor:
        for name, count in sorted(Counter(names).items()):
            cursor.execute(_COUNT, {"name": name, "count": count})
            (last,) = cursor.fetchone()
            left[name] = iter(range(last - count + 1, last + 1))
    return [f"{name}-{next(left[name]):04d}" for name in names]


_COUNT = """
INSERT INTO billing_invoiceseries AS s (name, last_number) VALUES (%(name)s, %(count)s)
ON CONFLICT (name) DO UPDATE SET last_number = s.last_number + %(count)s RETURNING last_number
"""

_ISSUE = """
UPDATE billing_invoice i SET state = %s, number = n.number, issued_on = n.issued_on, due_on = n.due_on, terms = n.terms
FROM unnest(%s::bigint[], %s::text[], %s::date[], %s::date[], %s::jsonb[]) AS n (id, number, issued_on, due_on, terms)
WHERE i.id = n.id
"""
