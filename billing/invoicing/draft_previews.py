"""What a close would issue to one tenant, document by document: issued as it would be, looked at, and taken back.

So a draft has the lines, the taxes and the look of the invoice, whichever of its parts are new tomorrow, and no number
is used up. Its number and what is made of it, such as the reference of a transfer, are not told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from django.db import transaction
from django.db.models import Q

from billing.catalog import billing_periods
from billing.documents import build
from billing.documents.invoice import InvoiceDocument
from billing.invoicing import month_close, numbering
from billing.invoicing.close_results import TenantClose
from billing.models import BillingPeriod, Invoice, InvoiceState
from portal.core.tenants.models import Tenant

T = TypeVar("T")

NUMBER = "Draft"
"""Stands where an issued document has its number."""


@dataclass(frozen=True, slots=True)
class Drafts(Generic[T]):
    """What was read of each document, the period's invoice first; `closed` says why there is none."""

    closed: TenantClose
    documents: list[T]


def read_drafts(
    *,
    tenant: Tenant,
    year: int,
    month: int,
    moment: datetime,
    read: Callable[[Invoice], T],
    accept_incomplete: str = "",
) -> Drafts[T]:
    """`read` is called with each document, before all of it is taken back: it must not keep rows.

    What waits for approval is a document, too: it is looked at before it is approved.
    """
    with transaction.atomic():
        numbering.lock_tenants([tenant])  # or a close that cannot have it would be told as one that failed
        issued_ids = set(Invoice.objects.issued().filter(tenant=tenant).values_list("pk", flat=True))
        (closed,) = month_close.close_month(
            tenants=[tenant], year=year, month=month, moment=moment, accept_incomplete=accept_incomplete
        )
        rows = Invoice.objects.filter(tenant=tenant).select_related(
            "tenant", "period", "original", "replaces"
        )
        pending = Q(state=InvoiceState.PENDING_APPROVAL, period__in=_list_periods(tenant, year, month))
        rows = rows.filter(Q(state=InvoiceState.ISSUED) | pending).exclude(pk__in=issued_ids)
        documents = sorted(rows, key=lambda row: (row.original_id is not None, row.period_start, row.pk))
        drafts = Drafts(closed, [read(row) for row in documents])
        transaction.set_rollback(True)
    return drafts


def load_document(invoice: Invoice, *, moment: datetime) -> InvoiceDocument:
    """The draft's PDF as plain values, inside the transaction that drafts it."""
    day = billing_periods.day_of(moment, invoice.period)
    invoice.number, invoice.issued_on = NUMBER, invoice.issued_on or day
    document = build.document_of(invoice)
    notice = f"Draft of {day}: it has no number, and nothing is to be paid on it."
    return replace(
        document, draft=True, payment_reference="", payment_code=(), notes=f"{notice}\n{document.notes}"
    )


def _list_periods(tenant: Tenant, year: int, month: int) -> list[BillingPeriod]:
    period = billing_periods.starting_in(tenant=tenant, year=year, month=month)
    return [period] if period else []
