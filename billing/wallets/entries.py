"""Writing on a wallet: bookings whose entries add up to zero, and the projections that follow them.

Whoever writes holds the wallet's row (`locked`), so that balances, what is left of grants and holds
are read and changed by one at a time.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django.db import transaction

from billing.models import Settles, Subscription
from billing.models.wallets import EntrySide, Wallet, WalletEntry, WalletGrant
from billing.rules.wallet import Grant, Piece, repay


class WalletError(Exception):
    """A wallet cannot be changed so; the message says why and what to do."""


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


def locked(wallets: Iterable[int]) -> dict[int, Wallet]:
    """The wallets by id, locked until the transaction ends; in order of id, as by every other holder of several."""
    found = Wallet.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=list(wallets))
    return {wallet.pk: wallet for wallet in found.select_related("scheme", "tenant").order_by("pk")}


def grants_of(wallet: Wallet) -> list[Grant]:
    """Grants with something left, as the rules have them; of a locked wallet they stay so."""
    rows = WalletGrant.objects.filter(wallet=wallet, left__gt=0).values_list(
        "pk", "left", "priority", "usable_from", "expires_on"
    )
    return [Grant(*row) for row in rows]


def pays_first(tenant: int, unit: str) -> bool:
    """Whether a plan that the tenant was ever on, or goes to, has its wallet in that unit pay invoices first."""
    return Subscription.objects.filter(
        tenant=tenant, plan__settles=Settles.WALLET_FIRST, plan__currency=unit
    ).exists()


@transaction.atomic
def post(wallet: Wallet, booking: Booking) -> None:
    """Write the booking on the locked wallet; its balance and the grants follow. Nothing for no pieces."""
    pieces = [piece for piece in booking.pieces if piece.amount]
    if not pieces:
        return
    total = sum(piece.amount for piece in pieces)
    if booking.other is None and total:
        raise ValueError(f"{total} would come from nowhere.")
    number = uuid.uuid4()
    common = {
        "booking": number,
        "wallet": wallet,
        "tenant_id": wallet.tenant_id,
        "at": booking.at,
        "memo": booking.memo,
        "day": booking.day,
        "invoice_id": booking.invoice,
    }
    rows = [
        WalletEntry(side=EntrySide.BALANCE, grant_id=piece.grant, amount=piece.amount, **common)
        for piece in pieces
    ]
    if booking.other is not None and total:
        rows.append(WalletEntry(side=booking.other, amount=-total, **common))
    WalletEntry.objects.bulk_create(rows)
    _follow(wallet, pieces, total)


def repay_debt(wallet: Wallet, *, day: date, at: datetime) -> None:
    """Let grants that pay for `day` pay what lies below zero; nothing where nothing does, or no grant is left."""
    grants = grants_of(wallet)
    debt = sum(grant.left for grant in grants) - wallet.balance
    if debt <= 0 or not grants:
        return
    paid = repay(debt, grants, day=day)
    pieces = [Piece(piece.grant, -piece.amount) for piece in paid]
    post(
        wallet,
        Booking([*pieces, Piece(None, sum(piece.amount for piece in paid))], None, at, memo="Debt repaid"),
    )


def stay_expired(wallet: Wallet, returned: Iterable[Piece], moment: datetime) -> None:
    """What returns to a grant that has been swept away goes with it."""
    keys = [piece.grant for piece in returned if piece.grant is not None]
    gone = set(WalletGrant.objects.filter(pk__in=keys, expired_at__isnull=False).values_list("pk", flat=True))
    pieces = [Piece(piece.grant, -piece.amount) for piece in returned if piece.grant in gone]
    post(wallet, Booking(pieces, EntrySide.EXPIRED, moment, memo="Returned to what had expired"))


def _follow(wallet: Wallet, pieces: Sequence[Piece], total: int) -> None:
    wallet.balance += total
    Wallet.objects.filter(pk=wallet.pk).update(balance=wallet.balance)
    changed: Counter[int] = Counter()
    for piece in pieces:
        if piece.grant is not None:
            changed[piece.grant] += piece.amount
    rows = list(WalletGrant.objects.filter(pk__in=changed))
    for row in rows:
        row.left += changed[row.pk]
    WalletGrant.objects.bulk_update(rows, ["left"])
