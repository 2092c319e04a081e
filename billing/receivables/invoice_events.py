"""What is told of invoices: events beside the rows that cause them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from billing.models import DocumentKind, Invoice, InvoiceState
from portal.core.events import events
from portal.core.events.events import Fact
from portal.core.events.models import EventType


def record_issued(documents: Sequence[Invoice]) -> None:
    """That they are issued; and of an invoice that a wallet or a credit note has just paid off, that it is paid."""
    events.record_many(
        _fact(
            EventType.CREDIT_NOTE_ISSUED
            if document.kind == DocumentKind.CREDIT_NOTE
            else EventType.INVOICE_ISSUED,
            document.pk,
            document.tenant_id,
            InvoiceState.ISSUED,
        )
        for document in documents
    )
    taken_off = {
        invoice.pk: invoice.total
        for invoice in documents
        if invoice.kind != DocumentKind.CREDIT_NOTE and invoice.prepaid
    }
    for note in documents:
        if note.kind == DocumentKind.CREDIT_NOTE and note.original_id is not None:
            taken_off[note.original_id] = taken_off.get(note.original_id, 0) + note.prepaid - note.total
    record_paid(taken_off)


def record_paid(taken_off: dict[int, int]) -> None:
    """That nothing is left of those invoices, where something was before so many minor units were taken off each.

    By whoever wrote that, in the same transaction and under the invoice's lock.
    """
    if not taken_off:
        return
    rows = Invoice.objects.filter(pk__in=taken_off, state=InvoiceState.ISSUED).order_by("pk")
    events.record_many(
        _fact(EventType.INVOICE_PAID, pk, tenant, "paid")
        for pk, tenant, left in rows.values_list("pk", "tenant", "balance__left")
        if left <= 0 < left + taken_off[pk]
    )


def record_payment(invoice: Invoice, amount: int) -> None:
    """That money came for it by transfer or from the credit balance; below zero some went, of which nobody is told."""
    if amount > 0:
        what, state = EventType.PAYMENT_SUCCEEDED, "succeeded"
        events.record(what, kind="inv", key=invoice.pk, state=state, tenant=invoice.tenant_id)
    record_paid({invoice.pk: amount})


def record_overdue(invoices: Iterable[tuple[int, int, int]]) -> None:
    """That those are past due, by id, tenant and how often each was due again: each time is told once."""
    events.record_many(
        _fact(EventType.INVOICE_OVERDUE, pk, tenant, "past_due", cause=f"{pk} {crossing}")
        for pk, tenant, crossing in invoices
    )


def record_voided(invoice: Invoice) -> None:
    """That it is void."""
    events.record_many([_fact(EventType.INVOICE_VOIDED, invoice.pk, invoice.tenant_id, InvoiceState.VOID)])


def _fact(what: EventType, invoice: int, tenant: int, state: str, cause: str = "") -> Fact:
    return Fact(type=what, kind="inv", key=invoice, state=str(state), tenant=tenant, cause=cause)
