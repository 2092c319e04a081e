"""What reservations hold of wallets: one hold of each, which shrinks by what was booked of its job."""

from __future__ import annotations

from datetime import datetime
from math import ceil

from django.db.models import F

from billing.models import ReservedAmount, Wallet, WalletHold
from billing.reservations.progress import left_of, load_progress
from billing.wallets.entries import locked
from portal.core.tenants.models import Tenant


def hold_key(reservation: int | str) -> str:
    """Of the holds of the reservation with this id; what all of them begin with, of ""."""
    return f"reservation:{reservation}"


def shrink_holds(*, tenant: Tenant, moment: datetime) -> None:
    """Let each hold be what the rated seconds of its job leave; those that nothing is left of go.

    For a caller who has booked all that is rated and lets nothing be rated meanwhile: then no second is both held and
    booked.
    """
    standing = ReservedAmount.objects.filter(reservation__tenant=tenant, reservation__released_at=None)
    rows = standing.filter(wallet__isnull=False)
    amounts = {(row.wallet_id, hold_key(row.reservation_id)): row for row in rows}
    if not amounts:
        return
    progress = load_progress([tenant.pk], moment=moment, unseen=0)
    locked({wallet for wallet, _ in amounts if wallet is not None})
    for hold in WalletHold.objects.filter(wallet__in=[wallet for wallet, _ in amounts], released_at=None):
        row = amounts.get((hold.wallet_id, hold.key))
        one = progress.get(row.reservation_id) if row is not None else None
        if row is not None and one is not None:
            _set(hold, ceil(left_of(row, one, within=None, rated_only=True)), moment)


def _set(hold: WalletHold, amount: int, moment: datetime) -> None:
    if amount >= hold.amount:
        return
    Wallet.objects.filter(pk=hold.wallet_id).update(held=F("held") - (hold.amount - max(amount, 0)))
    if amount > 0:
        WalletHold.objects.filter(pk=hold.pk).update(amount=amount)
    else:
        WalletHold.objects.filter(pk=hold.pk).update(released_at=moment)
