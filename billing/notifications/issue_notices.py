"""That an invoice or a credit note was issued: an e-mail each, a row of the transaction that gives the number."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, time, timedelta

from billing.models import DocumentKind, Invoice, Notice, NoticeKind, NoticeState

OLD = timedelta(days=35)
"""A document that is dated longer ago is not sent by itself: history is imported so."""
TOO_OLD = "It is dated more than 35 days ago: `close_period --notify` sends it."


def announce_documents(invoices: Iterable[Invoice], *, moment: datetime | None) -> None:
    """For a caller that has just issued them, in its transaction; None: as of the beginning of their days."""
    Notice.objects.bulk_create([_make_notice(invoice, moment) for invoice in invoices])


def _make_notice(invoice: Invoice, moment: datetime | None) -> Notice:
    if invoice.issued_on is None:
        raise TypeError("only what is issued is sent")
    issued_at = moment or datetime.combine(invoice.issued_on, time.min, UTC)
    is_note = invoice.kind == DocumentKind.CREDIT_NOTE
    return Notice(
        tenant_id=invoice.tenant_id,
        invoice_id=invoice.pk,
        kind=NoticeKind.CREDIT_NOTE if is_note else NoticeKind.INVOICE,
        key=f"document:{invoice.pk}",
        created_at=issued_at,
        not_before=issued_at,
    )


def resend_documents(*, numbers: Collection[str], moment: datetime) -> int:
    """Have these documents sent however old they are; how many. Those that went out stay as they are."""
    notices = Notice.objects.filter(
        invoice__number__in=numbers, kind__in=(NoticeKind.INVOICE, NoticeKind.CREDIT_NOTE)
    )
    left_out = notices.filter(state=NoticeState.SKIPPED, reason=TOO_OLD) | notices.filter(
        state=NoticeState.WAITING
    )
    rows = list(left_out)
    for row in rows:
        row.details, row.state, row.reason, row.not_before = (
            row.details | {"notify": True},
            NoticeState.WAITING,
            "",
            moment,
        )
    Notice.objects.bulk_update(rows, ["details", "state", "reason", "not_before"], batch_size=500)
    return len(rows)
