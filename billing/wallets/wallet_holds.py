"""Holding credit for work that is admitted, and spending it: both end at the wallet's limit."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime

from django.db import transaction
from django.db.models import F, Q, Sum

from billing.models.wallets import EntrySide, Wallet, WalletGrant, WalletHold
from billing.rules.money import Money
from billing.rules.wallet import Piece
from billing.wallets import replay
from billing.wallets.entries import Booking, WalletError, locked
from billing.wallets.replay import Change
from portal.excerpt import quoted


def available(wallets: Iterable[Wallet], *, day: date) -> dict[int, int]:
    """By wallet what may be held or spent on `day`, overdraft included; below zero where the limit is passed.

    Grants that do not pay for that day do not count, although they are in the balance. One query.
    """
    rows = {wallet.pk: wallet for wallet in wallets}
    pays = Q(usable_from__lte=day) & (Q(expires_on=None) | Q(expires_on__gt=day))
    idle = WalletGrant.objects.filter(~pays, wallet__in=rows, left__gt=0).values_list("wallet")
    unusable = dict(idle.annotate(sum=Sum("left")))
    return {
        pk: row.balance - unusable.get(pk, 0) - row.held + row.scheme.overdraft for pk, row in rows.items()
    }


@transaction.atomic
def hold(*, wallet: Wallet, amount: int, key: str, moment: datetime) -> WalletHold:
    """Set `amount` aside; held once per `key`: called again with the same amount, the same hold.

    A key that was released is free: a job that is requeued is held anew, as a hold of its own, and the limit is
    checked again. Raises WalletError where the limit does not allow it, however many ask at once, and for another
    amount under the same key.
    """
    row = locked([wallet.pk])[wallet.pk]
    active = WalletHold.objects.filter(wallet=row, key=key, released_at=None).first()
    if active is not None:
        if active.amount != amount:
            raise WalletError("hold-key-used", key=quoted(key))
        return active
    replay.settle(wallet=row, moment=moment)
    _allow(row, amount, _today(row, moment))
    Wallet.objects.filter(pk=row.pk).update(held=F("held") + amount)
    return WalletHold.objects.create(
        wallet=row, tenant_id=row.tenant_id, key=key, amount=amount, placed_at=moment
    )


@transaction.atomic
def release(*, wallet: Wallet, key: str, moment: datetime) -> None:
    """Give the hold free; released already or never placed, nothing."""
    row = locked([wallet.pk])[wallet.pk]
    active = WalletHold.objects.filter(wallet=row, key=key, released_at=None).first()
    if active is not None:
        Wallet.objects.filter(pk=row.pk).update(held=F("held") - active.amount)
        WalletHold.objects.filter(pk=active.pk).update(released_at=moment)


@transaction.atomic
def spend(*, wallet: Wallet, amount: int, moment: datetime, memo: str) -> None:
    """Take `amount` for something that somebody chose to buy. Raises WalletError where the limit does not allow it.

    A second call spends again: whoever may be interrupted holds under a key first.
    """
    row = locked([wallet.pk])[wallet.pk]
    today = _today(row, moment)
    replay.settle(wallet=row, moment=moment)
    _allow(row, amount, today)
    spent = Booking([Piece(None, -amount)], EntrySide.SPENT, moment, memo=memo, day=today)
    replay.settle(wallet=row, moment=moment, change=Change(bookings=[spent], since=today))


def _today(wallet: Wallet, moment: datetime) -> date:
    return moment.astimezone(wallet.tenant.zone).date()


def _allow(wallet: Wallet, amount: int, day: date) -> None:
    if amount <= 0:
        raise WalletError("hold-of-nothing")
    free = available([wallet], day=day)[wallet.pk]
    if amount > free:
        unit = wallet.unit
        raise WalletError(
            "hold-beyond-balance",
            amount=Money.from_minor(amount, unit).text,
            unit=unit,
            free=Money.from_minor(max(free, 0), unit).text,
            wallet=wallet,
        )
