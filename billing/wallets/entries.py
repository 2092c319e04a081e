"""Writing on a wallet: bookings whose entries add up to zero, and the projections that follow them.

Whoever writes holds the wallet's row (`locked`), so that balances, what is left of grants and holds
are read and changed by one at a time.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django.db import connection, transaction

from billing.models import AutomaticTopUp, DebtTerms, QuotaChange, Settles, Subscription
from billing.models.wallets import EntrySide, Wallet, WalletEntry, WalletGrant
from billing.rules.wallet import Grant, Piece
from billing.wallets.messages import SENTENCES
from portal.core.events import events
from portal.core.events.models import EventType
from portal.errors import CodedError


class WalletError(CodedError):
    """A wallet cannot be changed so; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Booking:
    """Pieces that join the balance (positive) or leave it (negative), and the side that they come from or go to.

    `other` None: they move within the balance and add up to zero.
    """

    pieces: Sequence[Piece]
    other: EntrySide | None
    at: datetime
    memo: str = ""
    day: date | None = None  # of service
    invoice: int | None = None  # that it pays on, or that gives it back
    grant: int | None = None  # that is given, or expires


def locked(wallets: Iterable[int]) -> dict[int, Wallet]:
    """The wallets by id, locked until the transaction ends; in order of id, as by every other holder of several."""
    rows = Wallet.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=list(wallets))
    return {wallet.pk: wallet for wallet in rows.select_related("scheme", "tenant").order_by("pk")}


def grants_of(wallet: Wallet) -> list[Grant]:
    """Grants with something left, as the rules have them; of a locked wallet they stay so."""
    rows = WalletGrant.objects.filter(wallet=wallet, left__gt=0)
    return [grant_of(row, row.left) for row in rows]


def grant_of(row: WalletGrant, left: int, key: int | None = None) -> Grant:
    """The grant with so much left; `key` for one that has no number yet."""
    turn = (row.granted_at, row.key)
    return Grant(key or row.pk, left, row.priority, row.usable_from, row.expires_on, turn)


def pays_first(tenant: int, unit: str) -> bool:
    """Whether a plan that the tenant was ever on, or goes to, has its wallet in that unit pay invoices first."""
    return Subscription.objects.filter(
        tenant=tenant, plan__settles=Settles.WALLET_FIRST, plan__currency=unit
    ).exists()


@transaction.atomic
def post(wallet: Wallet, *bookings: Booking, changed: Mapping[int, WalletGrant] | None = None) -> None:
    """Write the bookings on the locked wallet; its balance and the grants follow. Nothing for no pieces.

    `changed`: grants of which more than what is left changes; they are saved with it.
    """
    rows: list[WalletEntry] = []
    left: Counter[int] = Counter()
    whole = 0
    for booking in bookings:
        pieces = [piece for piece in booking.pieces if piece.amount]
        total = sum(piece.amount for piece in pieces)
        if booking.other is None and total:
            raise ValueError(f"{total} would come from nowhere.")
        rows += _entries(wallet, booking, pieces, total)
        whole += total
        for piece in pieces:
            if piece.grant is not None:
                left[piece.grant] += piece.amount
    WalletEntry.objects.bulk_create(rows)
    _follow(wallet, left, whole, changed or {})


def _entries(wallet: Wallet, booking: Booking, pieces: Sequence[Piece], total: int) -> Iterator[WalletEntry]:
    """What joins the balance stands behind what leaves it: before a booking's last entry it was never higher.

    So whoever looks back for when the balance fell below a mark finds no fall within a booking.
    """
    common = {
        "booking": uuid.uuid4(),
        "wallet": wallet,
        "tenant_id": wallet.tenant_id,
        "at": booking.at,
        "memo": booking.memo,
        "day": booking.day,
        "invoice_id": booking.invoice,
    }
    for piece in sorted(pieces, key=lambda piece: piece.amount > 0):
        yield WalletEntry(side=EntrySide.BALANCE, grant_id=piece.grant, amount=piece.amount, **common)
    if booking.other is not None and total:
        yield WalletEntry(side=booking.other, grant_id=booking.grant, amount=-total, **common)


def _follow(wallet: Wallet, left: Mapping[int, int], total: int, changed: Mapping[int, WalletGrant]) -> None:
    if total:
        wallet.balance += total
        Wallet.objects.filter(pk=wallet.pk).update(balance=wallet.balance)
        _record_fall(wallet, wallet.balance - total)
        _have_debt_looked_at(wallet, wallet.balance - total)
    others = WalletGrant.objects.filter(pk__in=[pk for pk in left if pk not in changed])
    rows = [*others, *changed.values()]
    for row in rows:
        row.left += left.get(row.pk, 0)
    with connection.cursor() as cursor:
        columns = [(row.pk, row.amount, row.left, row.expired, row.gone_on) for row in rows]
        cursor.execute(_GRANTS, [list(column) for column in zip(*columns, strict=True)] or [[]] * 5)


def _record_fall(wallet: Wallet, before: int) -> None:
    """That it fell below its mark, which is that of its automatic top-up; without one, that nothing is left."""
    if wallet.balance >= before:
        return
    mark = (
        AutomaticTopUp.objects.filter(wallet=wallet, active=True).values_list("threshold", flat=True).first()
    )
    least = 1 if mark is None else mark
    if wallet.balance < least <= before:
        events.record(EventType.WALLET_LOW, kind="wal", key=wallet.pk, state="low", tenant=wallet.tenant_id)


def _have_debt_looked_at(wallet: Wallet, before: int) -> None:
    """By the pass over quotas, where the terms of wallets act on a debt, and this one was or is near to one."""
    rows = DebtTerms.objects.filter(scheme=wallet.scheme_id)
    if any(min(before, wallet.balance) < row.free_at or wallet.balance < 0 for row in rows):
        QuotaChange.objects.create(tenant_id=wallet.tenant_id)


# Hundreds at once where hours were missed: as cases of one expression they take seconds.
_GRANTS = """
UPDATE billing_walletgrant g SET amount = n.amount, "left" = n."left", expired = n.expired, gone_on = n.gone_on
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::date[])
    AS n (id, amount, "left", expired, gone_on)
WHERE g.id = n.id
"""
