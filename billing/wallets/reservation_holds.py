"""What reservations hold of wallets: one hold of each, which follows what was booked of its job."""

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


def adjust_holds(*, tenant: Tenant, moment: datetime) -> None:
    """Let each hold be what the rated seconds of its job leave; those that nothing is left of go.

    It grows, beyond the limit if need be, where the next task of an array or a requeued job takes the place of one that
    ended: it is admitted already. For a caller who has booked all that is rated and lets nothing be rated meanwhile:
    then no second is both held and booked.
    """
    standing = ReservedAmount.objects.filter(reservation__tenant=tenant, reservation__released_at=None)
    wallets = locked(standing.filter(wallet__isnull=False).values_list("wallet", flat=True))
    if not wallets:
        return
    # What stands is read when nobody reserves of the wallets any more.
    active = WalletHold.objects.filter(wallet__in=wallets, released_at=None)
    holds = {(hold.wallet_id, hold.key): hold for hold in active}
    progress = load_progress([tenant.pk], moment=moment, unseen=0)
    for row in standing.filter(wallet__in=wallets):
        one = progress.get(row.reservation_id)
        if one is not None and row.wallet_id is not None:
            left = ceil(left_of(row, one, within=None, rated_only=True))
            key = hold_key(row.reservation_id)
            _set(wallets[row.wallet_id], key, holds.get((row.wallet_id, key)), left, moment)


def _set(wallet: Wallet, key: str, hold: WalletHold | None, amount: int, moment: datetime) -> None:
    more = amount - (hold.amount if hold is not None else 0)
    if not more:
        return
    Wallet.objects.filter(pk=wallet.pk).update(held=F("held") + more)
    if hold is None:
        WalletHold.objects.create(
            wallet=wallet, tenant_id=wallet.tenant_id, key=key, amount=amount, placed_at=moment
        )
    elif amount:
        WalletHold.objects.filter(pk=hold.pk).update(amount=amount)
    else:
        WalletHold.objects.filter(pk=hold.pk).update(released_at=moment)
