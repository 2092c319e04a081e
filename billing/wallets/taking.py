"""Taking credit back whose money has gone again: what is left of its grant first, the rest below zero if need be."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from billing.models.wallets import EntrySide, WalletGrant
from billing.rules.wallet import Piece
from billing.wallets.entries import Booking, locked, post, repay_debt


@transaction.atomic
def take_back(*, grant: WalletGrant, amount: int, why: str, moment: datetime) -> None:
    """Take `amount` smallest units of a grant back, in full: what was spent of it is owed until other grants pay it.

    For a caller that knows that it was not taken back before; a second call takes as much again.
    """
    row = locked([grant.wallet_id])[grant.wallet_id]
    left = min(WalletGrant.objects.get(pk=grant.pk).left, amount)
    pieces = [Piece(grant.pk, -left), Piece(None, left - amount)]
    post(row, Booking(pieces, EntrySide.GRANTED, moment, memo=why))
    repay_debt(row, day=moment.astimezone(row.tenant.zone).date(), at=moment)
