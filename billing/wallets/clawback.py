"""Taking credit back whose money has gone again, and giving it again: from then on as if it had never been given."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from billing.models.wallets import EntrySide, WalletGrant
from billing.rules.wallet import Piece
from billing.wallets import replay
from billing.wallets.entries import Booking, locked
from billing.wallets.replay import Change


@transaction.atomic
def take_back(*, grant: WalletGrant, amount: int, why: str, moment: datetime) -> None:
    """Take `amount` smallest units of a grant back, in full; below zero: give them again.

    Days that it paid for are paid by other grants, or are a debt. For a caller that knows that it was not done before;
    a second call takes as much again.
    """
    row = locked([grant.wallet_id])[grant.wallet_id]
    withdrawal = Booking([Piece(grant.pk, -amount)], EntrySide.GRANTED, moment, memo=why, grant=grant.pk)
    replay.settle(wallet=row, moment=moment, change=Change(bookings=[withdrawal], since=grant.usable_from))
