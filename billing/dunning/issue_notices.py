"""That an invoice or a credit note was issued: an e-mail each, a row of the transaction that gives the number."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, time, timedelta

from billing.models import DocumentKind, Invoice, Letter, LetterKind, LetterState

OLD = timedelta(days=35)
"""A document that is dated longer ago is not sent by itself: history is imported so."""
TOO_OLD = "It is dated more than 35 days ago: `close_period --notify` sends it."


def of_issued(invoices: Iterable[Invoice], *, moment: datetime | None) -> None:
    """For a caller that has just issued them, in its transaction; None: as of the beginning of their days."""
    Letter.objects.bulk_create([_letter(invoice, moment) for invoice in invoices])


def _letter(invoice: Invoice, moment: datetime | None) -> Letter:
    if invoice.issued_on is None:
        raise TypeError("only what is issued is sent")
    made_at = moment or datetime.combine(invoice.issued_on, time.min, UTC)
    is_note = invoice.kind == DocumentKind.CREDIT_NOTE
    return Letter(
        tenant_id=invoice.tenant_id,
        invoice_id=invoice.pk,
        kind=LetterKind.CREDIT_NOTE if is_note else LetterKind.INVOICE,
        key=f"document:{invoice.pk}",
        made_at=made_at,
        not_before=made_at,
    )


def notify(*, numbers: Collection[str], moment: datetime) -> int:
    """Have these documents sent however old they are; how many. Those that went out stay as they are."""
    letters = Letter.objects.filter(
        invoice__number__in=numbers, kind__in=(LetterKind.INVOICE, LetterKind.CREDIT_NOTE)
    )
    left_out = letters.filter(state=LetterState.SKIPPED, why=TOO_OLD) | letters.filter(
        state=LetterState.WAITING
    )
    rows = list(left_out)
    for row in rows:
        row.told, row.state, row.why, row.not_before = (
            row.told | {"notify": True},
            LetterState.WAITING,
            "",
            moment,
        )
    Letter.objects.bulk_update(rows, ["told", "state", "why", "not_before"], batch_size=500)
    return len(rows)
