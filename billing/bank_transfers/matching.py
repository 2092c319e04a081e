"""What a transfer pays for sure: by the references that its payer wrote, its amount and its currency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django.db import transaction
from django.db.models import CharField, F, Func, Q, Value
from django.db.models.functions import Concat

from billing.bank_transfers import transfer_posting
from billing.bank_transfers.entities import clean_reference, hash_reference
from billing.bank_transfers.transfer_posting import CreditShare, InvoiceShare, Share, WalletShare
from billing.catalog.tenant_lock import lock_tenants
from billing.models import (
    DocumentKind,
    Invoice,
    InvoiceSeries,
    Transfer,
    TransferState,
    Wallet,
)
from billing.receivables import credit_balance, settlement
from billing.rules.money import TOKENS, Money
from billing.rules.references import numbers_in, wallets_in
from billing.wallets import batch
from billing.wallets.entries import WalletError


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Why nobody can be sure of it, in a sentence."""

    reason: str


REFUSALS = (settlement.PaymentError, credit_balance.CreditBalanceError, WalletError)
"""What cannot be booked although it is sure, since somebody did something by hand meanwhile."""

OUTGOING = "Money that left the account, and takes back no transfer that was booked here."


def match_new(*, moment: datetime) -> None:
    """Match every transfer that nobody has looked at, each in a transaction of its own.

    For a caller that is in none. One that fails holds up no other, and is tried again. Raises LeftOverError at the end.
    """
    transfers = Transfer.objects.filter(state=TransferState.NEW).only("amount", "currency", "booked_on")
    batch.run_isolated(
        sorted(transfers, key=matching_order), lambda row: match_transfer(transfer=row.pk, moment=moment)
    )


def matching_order(row: Transfer) -> tuple[date, bool, int]:
    """In this order they are matched: as they happened, since many banks' files have the newest first."""
    return row.booked_on, row.amount < 0, row.pk


@transaction.atomic
def match_transfer(*, transfer: int, moment: datetime) -> Transfer:
    """Book the transfer where it is sure what it pays; else it waits, or is set aside. Asked again, it is as it is."""
    seen = Transfer.objects.get(pk=transfer)
    others = _list_counterparts(seen)
    invoices, wallets = find_references(seen)
    concerned = [item.tenant for item in invoices] + [item.tenant for item in wallets]
    for other in others:
        concerned += [part.tenant for part in other.parts.select_related("tenant")]
    lock_tenants(concerned)
    keys = [seen.pk, *(item.pk for item in others)]
    rows = {row.pk: row for row in Transfer.objects.select_for_update().filter(pk__in=keys).order_by("pk")}
    row = rows[seen.pk]
    if row.state != TransferState.NEW:
        return row
    if any(rows[item.pk].state != item.state for item in others):
        return row  # somebody was quicker, and what it was booked on then is not locked: the next round finds it so
    others = [rows[item.pk] for item in others]
    try:
        with transaction.atomic():
            if row.amount < 0:
                _match_outgoing(row, others, moment)
            elif others:
                _match_returned(row, others, moment)
            else:
                _match_incoming(row, invoices, wallets, moment)
    except REFUSALS as refusal:
        row.refresh_from_db()
        _leave_waiting(row, str(refusal))
    return row


def _match_incoming(
    row: Transfer, invoices: Sequence[Invoice], wallets: Sequence[Wallet], moment: datetime
) -> None:
    decision = _find_shares(row, invoices, wallets)
    if isinstance(decision, NoMatch):
        _leave_waiting(row, decision.reason)
    else:
        transfer_posting.book_transfer(row, decision, by=transfer_posting.BY, at=moment)


def _leave_waiting(row: Transfer, reason: str) -> None:
    row.state, row.reason = TransferState.WAITING, reason
    row.save()


def find_references(row: Transfer) -> tuple[list[Invoice], list[Wallet]]:
    """The issued invoices and the wallets that its payer named for sure. Three queries at most."""
    texts = [row.text, row.reference, row.end_to_end]
    numbers = numbers_in(
        [*texts, row.text.replace("\n", "")], InvoiceSeries.objects.values_list("name", flat=True)
    )
    candidates = Invoice.objects.issued().filter(number__in=numbers).exclude(kind=DocumentKind.CREDIT_NOTE)
    invoices = list(candidates.select_related("tenant").order_by("due_on", "pk")) if numbers else []
    keys = wallets_in([*texts, row.text.replace("\n", "")])
    wallets = Wallet.objects.filter(pk__in=keys).select_related("tenant").order_by("pk") if keys else ()
    return invoices, list(wallets)


def _find_shares(
    row: Transfer, invoices: Sequence[Invoice], wallets: Sequence[Wallet]
) -> list[Share] | NoMatch:
    if row.reversal:
        return NoMatch("The bank says that it reverses another entry: see which one.")
    if not invoices and not wallets:
        return NoMatch("It names no open invoice and no wallet.")
    if wallets:
        return _find_wallet_share(row, invoices, wallets)
    wrong = next((invoice for invoice in invoices if invoice.currency != row.currency), None)
    if wrong is not None:
        return NoMatch(f"{wrong} is in {wrong.currency}, the transfer in {row.currency}.")
    if len({invoice.tenant_id for invoice in invoices}) > 1:
        return NoMatch("It names invoices of several tenants.")
    return spread_amount(row, invoices)


def _find_wallet_share(
    row: Transfer, invoices: Sequence[Invoice], wallets: Sequence[Wallet]
) -> list[Share] | NoMatch:
    if invoices or len(wallets) > 1:
        return NoMatch("It names a wallet and something else: say how much is for which.")
    wallet = wallets[0]
    if wallet.unit != row.currency or wallet.unit == TOKENS:
        return NoMatch(f"The wallet is in {wallet.unit}, the transfer in {row.currency}.")
    if why := transfer_posting.describe_departure(wallet.tenant):
        return NoMatch(why)
    return [WalletShare(wallet, row.amount)]


def spread_amount(row: Transfer, invoices: Sequence[Invoice]) -> list[Share] | NoMatch:
    """Over what is due of these invoices of one tenant, in their order; what is left goes to its credit balance."""
    shares: list[Share] = []
    left = row.amount
    for invoice in invoices:
        due = transfer_posting.payable_amount(invoice, row.booked_on)
        if (amount := min(left, due)) > 0:
            shares.append(InvoiceShare(invoice, amount))
            left -= amount
    if not shares:
        names = " and ".join(str(invoice) for invoice in invoices)
        are = "is" if len(invoices) == 1 else "are"
        return NoMatch(f"{names} {are} paid already: see whether this was recorded by hand.")
    if left:
        shares.append(CreditShare(invoices[0].tenant, left))
    return shares


def _list_counterparts(row: Transfer) -> list[Transfer]:
    """Two at most that this one may take back, or that may have taken this one back: bank or payer call both the same.

    A name that says that there is none is known here rather than by its reader: CSV is kept as it was written. The
    bank's may be kept as a hash of one of the two, of which alone it tells who paid.
    """
    same = Q()
    if clean_reference(row.bank_reference):
        same |= Q(bank_reference__in=[row.bank_reference, hash_reference(row.bank_reference)])
        same |= Q(as_hash=row.bank_reference)
    if clean_reference(row.end_to_end):
        same |= Q(end_to_end=row.end_to_end)
    if not same:
        return []
    candidates = Transfer.objects.alias(as_hash=_AS_HASH).filter(
        same, account=row.account, currency=row.currency, amount=-row.amount
    )
    if row.amount < 0:
        candidates = candidates.filter(undone_by=None, booked_on__lte=row.booked_on)
        candidates = candidates.exclude(state=TransferState.RETURNED)
    else:
        unexplained = (TransferState.WAITING, TransferState.IGNORED)
        candidates = candidates.filter(state__in=unexplained, booked_on__gte=row.booked_on)
    return list(candidates.order_by("pk")[:2])


_AS_HASH = Concat(
    Value("#"),
    Func(
        F("bank_reference"), template="left(encode(sha256(convert_to(%(expressions)s, 'UTF8')), 'hex'), 16)"
    ),
    output_field=CharField(),
)
"""As `hash_reference`, of what is kept."""


def _match_outgoing(row: Transfer, others: Sequence[Transfer], moment: datetime) -> None:
    """A debit: it takes a transfer back, waits where that is not sure, or is none of ours."""
    if len(others) == 1 and _is_return(row, others[0]):
        book_return(row, others[0], by=transfer_posting.BY, moment=moment)
    elif row.reversal:
        _leave_waiting(row, "The bank took a transfer back, and it cannot be told which one: say which.")
    elif others:
        day = others[0].booked_on
        _leave_waiting(row, f"It may take back the transfer of {day}, of the same reference: say so.")
    else:
        row.state, row.reason = TransferState.IGNORED, OUTGOING
        row.save()


def _match_returned(row: Transfer, debits: Sequence[Transfer], moment: datetime) -> None:
    """Money that came, and seems to have left again by a debit of a statement that was taken in before."""
    debit = debits[0]
    alone = len(debits) == 1 and [counterpart.pk for counterpart in _list_counterparts(debit)] == [row.pk]
    if alone and not debit.decided_by and _is_return(debit, row):
        book_return(debit, row, by=transfer_posting.BY, moment=moment)
        return
    _leave_waiting(
        row,
        f"{format_amount(debit)} of {debit.booked_on}, of the same reference, may have taken it back: see.",
    )


def _is_return(debit: Transfer, original: Transfer) -> bool:
    """Whether it is sure, beside the name of both: the bank says that it is a return, or it goes where that came from.

    A payment to somebody else may have the same name by chance.
    """
    return debit.reversal or debit.payer_iban == original.payer_iban != ""


def book_return(row: Transfer, original: Transfer, *, by: str, moment: datetime) -> None:
    """The debit `row` takes `original` back. For a caller that holds the locks of both, and of its tenants."""
    row.undoes, row.state, row.reason = (
        original,
        TransferState.BOOKED,
        f"Takes back the transfer of {original.booked_on}.",
    )
    row.decided_by, row.decided_at = by, moment
    row.save()
    transfer_posting.undo_booking(
        original,
        state=TransferState.RETURNED,
        reason=f"Went back on {row.booked_on}.",
        by=by,
        at=moment,
        on=row.booked_on,
    )


def format_amount(row: Transfer) -> str:
    """`"20.00 EUR"`"""
    return f"{Money.from_minor(row.amount, row.currency).text} {row.currency}"
