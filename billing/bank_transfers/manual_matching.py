"""What people decide of transfers that nobody could be sure of: who, when and why is in the history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from django.db import transaction

from billing.bank_transfers import matching, transfer_posting
from billing.bank_transfers.matching import REFUSALS
from billing.bank_transfers.messages import SENTENCES
from billing.bank_transfers.transfer_posting import CreditShare, InvoiceShare, Share
from billing.catalog.tenant_lock import lock_tenants
from billing.models import DocumentKind, Invoice, RefusedEntry, Transfer, TransferState
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from portal.errors import CodedError
from portal.excerpt import excerpt


class DecisionError(CodedError):
    """It cannot be decided so; its sentence says why and what to do."""

    sentences = SENTENCES


@contextmanager
def _lock_transfer(
    transfers: Sequence[Transfer], tenants: Sequence[Tenant], *states: TransferState
) -> Iterator[list[Transfer]]:
    """The transfers, locked behind their tenants, where the first is in one of the states.

    In order of id, as whoever matches them does: of two who want both, one waits for the other.
    """
    with transaction.atomic():
        lock_tenants(tenants)
        keys = [transfer.pk for transfer in transfers]
        by_pk = {
            row.pk: row for row in Transfer.objects.select_for_update().filter(pk__in=keys).order_by("pk")
        }
        rows = [by_pk[key] for key in keys]
        if rows[0].state not in states:
            raise DecisionError("already-decided", state=rows[0].get_state_display())
        try:
            yield rows
        except REFUSALS as refusal:
            raise DecisionError("refused", reason=refusal) from refusal


def assign_transfer(
    *, transfer: Transfer, numbers: Sequence[str], tenant: Tenant | None, by: str, moment: datetime
) -> Transfer:
    """Book a waiting transfer on these invoices in their order, as far as each is due, and the rest as credit.

    Without invoices all of it becomes credit of `tenant`; what is left over of invoices goes to their tenant, or to
    `tenant`. A second call is refused. Raises DecisionError.
    """
    invoices = _load_invoices(transfer, numbers)
    heir = tenant or (invoices[0].tenant if len({invoice.tenant_id for invoice in invoices}) == 1 else None)
    concerned = [invoice.tenant for invoice in invoices] + ([heir] if heir else [])
    if not concerned:
        raise DecisionError("nothing-chosen")
    with _lock_transfer([transfer], concerned, TransferState.WAITING) as (row,):
        if row.amount < 0:
            raise DecisionError("outgoing")
        shares: list[Share] = []
        left = row.amount
        for invoice in invoices:
            due = transfer_posting.payable_amount(invoice, row.booked_on)
            if due <= 0:
                raise DecisionError("nothing-due", invoice=invoice)
            if left > 0:
                shares.append(InvoiceShare(invoice, min(due, left)))
                left -= min(due, left)
            else:
                raise DecisionError("nothing-left", invoice=invoice)
        if left:
            shares.append(_make_rest(row, left, heir, invoices))
        transfer_posting.book_transfer(row, shares, by=by, at=moment)
    return row


def _make_rest(row: Transfer, left: int, heir: Tenant | None, invoices: Sequence[Invoice]) -> CreditShare:
    """What is left over, as credit. One that has left gets none, but what it paid too much of an invoice of its own."""
    if heir is None:
        over = Money.from_minor(left, row.currency).text
        raise DecisionError("left-over", amount=over, currency=row.currency)
    paid_for = {invoice.tenant_id for invoice in invoices}
    if heir.pk not in paid_for and (why := transfer_posting.describe_departure(heir)):
        raise DecisionError("refused", reason=why)
    return CreditShare(heir, left)


def ignore_transfer(*, transfer: Transfer, reason: str, by: str, moment: datetime) -> Transfer:
    """It is none of what is collected here, for this reason. A second call is refused. Raises DecisionError."""
    if not reason.strip():
        raise DecisionError("ignored-without-reason")
    with _lock_transfer([transfer], (), TransferState.WAITING) as (row,):
        row.state, row.reason, row.decided_by, row.decided_at = (
            TransferState.IGNORED,
            reason.strip(),
            by,
            moment,
        )
        row.save()
    return row


def reopen_transfer(*, transfer: Transfer, reason: str, by: str, moment: datetime) -> Transfer:
    """Take back what was decided: it waits again, and what it was booked on is due again. Raises DecisionError.

    A debit that took a transfer back gives it free: both wait, and that one is booked again by who knows on what.
    """
    if not reason.strip():
        raise DecisionError("taken-back-without-reason")
    tenants = [part.tenant for part in transfer.parts.select_related("tenant")]
    seen = Transfer.objects.select_related("undoes").get(pk=transfer.pk)
    both = [seen] if seen.undoes is None else [seen, seen.undoes]
    with _lock_transfer(both, tenants, TransferState.BOOKED, TransferState.IGNORED) as rows:
        row = rows[0]
        if row.undoes_id != seen.undoes_id:
            raise DecisionError("decided-meanwhile")
        row.undoes = None
        for locked_row in rows:
            _refuse_others(locked_row, tenants)
            transfer_posting.undo_booking(
                locked_row,
                state=TransferState.WAITING,
                reason=reason.strip(),
                by=by,
                at=moment,
                on=row.booked_on,
            )
    return row


def match_return(*, transfer: Transfer, original: Transfer, by: str, moment: datetime) -> Transfer:
    """A waiting debit takes this transfer back: what that one paid is due again. Raises DecisionError."""
    if (original.account, original.currency, original.amount) != (
        transfer.account,
        transfer.currency,
        -transfer.amount,
    ):
        raise DecisionError("other-amount")
    tenants = [part.tenant for part in original.parts.select_related("tenant")]
    with _lock_transfer([transfer, original], tenants, TransferState.WAITING, TransferState.IGNORED) as (
        row,
        other,
    ):
        if other.amount < 0 or other.state == TransferState.RETURNED:
            raise DecisionError("returned-already")
        _refuse_others(other, tenants)
        matching.book_return(row, other, by=by, moment=moment)
    return row


def _refuse_others(row: Transfer, locked: Sequence[Tenant]) -> None:
    """Who was quicker may have booked it on tenants whose credit is not locked here. For who holds its lock."""
    parts = row.parts.filter(amount__gt=0, undone_by=None)
    if not set(parts.values_list("tenant", flat=True)) <= {tenant.pk for tenant in locked}:
        raise DecisionError("decided-meanwhile")


@transaction.atomic
def settle_entry(*, entry: RefusedEntry, reason: str, by: str) -> None:
    """Somebody did what is to be done about an entry in quarantine. A second call is refused."""
    if not reason.strip():
        raise DecisionError("settled-without-reason")
    row = RefusedEntry.objects.select_for_update().get(pk=entry.pk)
    if row.resolution:
        raise DecisionError("settled-already")
    row.settled_by, row.resolution = by, reason.strip()
    row.save()


def _load_invoices(transfer: Transfer, numbers: Sequence[str]) -> list[Invoice]:
    by_number = {
        row.number: row
        for row in Invoice.objects.issued()
        .filter(number__in=numbers)
        .exclude(kind=DocumentKind.CREDIT_NOTE)
        .select_related("tenant")
    }
    invoices = []
    for number in dict.fromkeys(numbers):
        if number not in by_number:
            raise DecisionError("no-invoice", number=excerpt(number))
        if by_number[number].currency != transfer.currency:
            raise DecisionError(
                "other-currency", invoice=number, currency=by_number[number].currency, other=transfer.currency
            )
        invoices.append(by_number[number])
    return invoices
