"""E-mails about what stands: invoices and credit notes with their PDF, receipts of payments, and refunds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import CharField, Exists, OuterRef, Q, Sum, Value
from django.db.models.functions import Cast, Concat

from billing.models import (
    AttemptState,
    InvoiceDocument,
    InvoiceState,
    Notice,
    NoticeKind,
    Payment,
    PaymentAttempt,
    PaymentRefund,
    RefundState,
    TransferPart,
)
from billing.notifications.issue_notices import OLD, TOO_OLD
from billing.payments import payment_posting
from billing.receivables.dunning_policies import Policies

DOCUMENTS: Final = (NoticeKind.INVOICE, NoticeKind.CREDIT_NOTE)
KINDS: Final = (*DOCUMENTS, NoticeKind.RECEIPT, NoticeKind.REFUND)
LOOK: Final = timedelta(minutes=1)
LONGEST: Final = timedelta(hours=1)
"""So long a document waits for its PDF; then it goes without."""
RECENT: Final = OLD
"""So long a payment is still news: a bank's statement of a month is imported after its last day."""


def next_look(notice: Notice, *, moment: datetime) -> datetime | None:
    """When to look again for the PDF of what is to be sent; None where it is there, or was waited for long enough."""
    if notice.kind not in DOCUMENTS or InvoiceDocument.objects.filter(invoice=notice.invoice_id).exists():
        return None
    since = datetime.fromisoformat(notice.details.setdefault("since", moment.isoformat()))
    return moment + LOOK if moment - since < LONGEST else None


def load_attachments(notice: Notice) -> Iterator[tuple[str, bytes, str]]:
    """The PDF and the e-invoice of a document, as they are kept."""
    if notice.kind not in DOCUMENTS or notice.invoice is None:
        return
    document = InvoiceDocument.objects.filter(invoice=notice.invoice_id).first()
    if document is None:
        return
    name = (notice.invoice.number or "").replace("/", "-")
    yield f"{name}.pdf", bytes(document.pdf), "application/pdf"
    if document.einvoice:
        yield f"{name}.xml", bytes(document.einvoice), "application/xml"


def skip_reason(notice: Notice, *, moment: datetime) -> str:
    """What makes it pointless by now, in a sentence; "" where nothing does."""
    invoice = notice.invoice
    if notice.kind in DOCUMENTS and invoice is not None and invoice.issued_on is not None:
        if invoice.state == InvoiceState.VOID:
            return "It is void."
        if invoice.issued_on < (moment - OLD).date() and not notice.details.get("notify"):
            return TOO_OLD
    if notice.kind == NoticeKind.RECEIPT and "part" in notice.details:
        is_reversed = TransferPart.objects.filter(undoes=notice.details["part"]).exists()
        return "The payment was taken back." if is_reversed else ""
    if notice.kind == NoticeKind.RECEIPT and "payment" in notice.details:
        payment = Payment.objects.get(pk=notice.details["payment"])
        same = Payment.objects.filter(invoice=payment.invoice_id, reference=payment.reference)
        undone = TransferPart.objects.filter(undoes__payment=payment)
        if undone.exists() or (same.aggregate(sum=Sum("amount"))["sum"] or 0) <= 0:
            return "The payment was taken back."
    return ""


def write_money_notices(policies: Policies, *, moment: datetime) -> Iterator[Notice]:
    """Receipts of what came, and news of what was given back, each once. Four queries where nothing is new."""
    yield from _payment_notices(policies, moment)
    yield from _top_up_notices(policies, moment)
    yield from _wallet_transfer_notices(policies, moment)
    yield from _refund_notices(policies, moment)


def _payment_notices(policies: Policies, moment: datetime) -> Iterator[Notice]:
    """Not of what came again after it went: a refund that failed, a dispute that was won."""
    came = ~Q(recorded_by=payment_posting.BY) | ~Q(reference__regex=r"^(re|pyr|dp|du)_")
    since = (moment - RECENT).date()
    rows = Payment.objects.filter(came, ~_has_notice("receipt"), amount__gt=0, received_on__gte=since)
    for payment in rows.select_related("invoice").order_by("pk"):
        if policies.of(payment.tenant_id, payment.invoice.due_on or moment.date()).receipts:
            details = {"payment": payment.pk}
            yield _notice(payment, "receipt", moment, invoice=payment.invoice, details=details)


def _top_up_notices(policies: Policies, moment: datetime) -> Iterator[Notice]:
    rows = PaymentAttempt.objects.filter(
        ~_has_notice("receipt"),
        state=AttemptState.SUCCEEDED,
        top_up__isnull=False,
        settled_at__gte=moment - RECENT,
    )
    for attempt in rows.order_by("settled_at"):
        if policies.of(attempt.tenant_id, moment.date()).receipts:
            yield _notice(attempt, "receipt", moment, attempt=attempt)


def _wallet_transfer_notices(policies: Policies, moment: datetime) -> Iterator[Notice]:
    rows = TransferPart.objects.filter(
        ~_has_notice("receipt:transfer"),
        grant__isnull=False,
        amount__gt=0,
        undone_by=None,
        transfer__booked_on__gte=(moment - RECENT).date(),
    )
    for part in rows.order_by("pk"):
        if policies.of(part.tenant_id, moment.date()).receipts:
            yield _notice(part, "receipt:transfer", moment, details={"part": part.pk})


def _refund_notices(policies: Policies, moment: datetime) -> Iterator[Notice]:
    rows = PaymentRefund.objects.filter(
        ~_has_notice("refund"), state=RefundState.SUCCEEDED, created_at__gte=moment - RECENT
    )
    for refund in rows.select_related("attempt__invoice").order_by("created_at"):
        if policies.of(refund.tenant_id, moment.date()).receipts:
            details = {"refund": str(refund.pk)}
            yield _notice(refund, "refund", moment, invoice=refund.attempt.invoice, details=details)


def _notice(
    row: Payment | PaymentAttempt | TransferPart | PaymentRefund, key: str, moment: datetime, **fields: Any
) -> Notice:
    """Of a row, to be sent at once. `key` begins with the kind; `_has_notice` looks for it."""
    return Notice(
        tenant_id=row.tenant_id,
        kind=NoticeKind(key.partition(":")[0]),
        key=f"{key}:{row.pk}",
        created_at=moment,
        not_before=moment,
        **fields,
    )


def _has_notice(key: str) -> Exists:
    """Of the outer query's row: whether it has its notice already."""
    name = Concat(Value(f"{key}:"), Cast(OuterRef("pk"), CharField()))
    return Exists(Notice.objects.filter(key=name))
