"""Giving credit: by hand, by a scheme's rules as they come due, and what expires of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import connection, transaction

from billing.models.archives import Archive
from billing.models.wallets import PAYS_FIRST, EntrySide, GrantKind, Wallet, WalletGrant
from billing.rules import wallet as rules
from billing.rules.money import LARGEST
from billing.rules.wallet import Every, Piece
from billing.rules.wallet_course import SWEEP_AFTER
from billing.wallets import batch, replay
from billing.wallets.entries import Booking, WalletError, locked
from billing.wallets.replay import Change
from portal.core.events import events
from portal.core.events.models import EventType
from portal.excerpt import quoted


@transaction.atomic
def grant(
    *,
    wallet: Wallet,
    amount: int,
    key: str,
    who: str,
    moment: datetime,
    why: str = "",
    kind: GrantKind = GrantKind.GIFT,
    priority: int = PAYS_FIRST,
    expires_on: date | None = None,
) -> WalletGrant:
    """Give `amount` smallest units from today on, in the tenant's zone; the debt is paid out of it first.

    Given once per `key`: asked again with the same amount, the same grant. Raises WalletError for another
    amount under the same key, for nothing, for what expires at once, and for a gift to who has left.
    """
    if amount <= 0:
        raise WalletError("grant-of-nothing")
    if amount > LARGEST:
        raise WalletError("grant-too-large", most=LARGEST)
    row = locked([wallet.pk])[wallet.pk]
    existing = WalletGrant.objects.filter(wallet=row, key=key).first()
    if existing is not None:
        if existing.amount != amount:
            raise WalletError("grant-key-used", key=quoted(key))
        return existing
    archive = Archive.objects.filter(tenant=row.tenant_id).first()
    if archive is not None and kind == GrantKind.GIFT:  # money that came is booked whoever has left
        raise WalletError("grant-to-archived", tenant=row.tenant, day=archive.at.date())
    today = moment.astimezone(row.tenant.zone).date()
    if expires_on is not None and expires_on <= today:
        raise WalletError("grant-expired", day=expires_on)
    row_granted = WalletGrant.objects.create(
        wallet=row,
        tenant_id=row.tenant_id,
        kind=kind,
        key=key,
        amount=amount,
        left=0,
        priority=priority,
        usable_from=today,
        expires_on=expires_on,
        granted_at=moment,
        granted_by=who,
        reason=why,
    )
    booking = Booking(
        [Piece(row_granted.pk, amount)], EntrySide.GRANTED, moment, memo=why or key, grant=row_granted.pk
    )
    replay.settle(wallet=row, moment=moment, change=Change(bookings=[booking], since=today))
    what = EventType.WALLET_TOPPED_UP
    events.record(what, kind="wal", key=row.pk, state="topped_up", tenant=row.tenant_id)
    row_granted.refresh_from_db()
    return row_granted


@transaction.atomic
def accrue(*, wallet: Wallet, moment: datetime) -> None:
    """Give what the scheme's rules have made due up to `moment`, and let expire what has to; each once.

    What was missed is made up for. A capped grant looks at the balance as it was when it was due.
    """
    replay.settle(wallet=locked([wallet.pk])[wallet.pk], moment=moment)


def tend(*, moment: datetime) -> None:
    """Accrue and expire on every wallet that has something due; each is its own transaction, so a kill loses nothing.

    One that fails holds up no other, and is due again. Raises LeftOverError at the end.
    """
    due = _accruing(moment) | _expiring(moment)
    wallets = Wallet.objects.filter(pk__in=due).order_by("pk").iterator()
    batch.run_isolated(wallets, lambda wallet: accrue(wallet=wallet, moment=moment))


def _accruing(moment: datetime) -> set[int]:
    """The wallets that some rule gives something by now. One query, however many they are."""
    wallets = set()
    with connection.cursor() as cursor:
        cursor.execute(_RULES)
        for wallet, every, opened, through, ends, zone, anchor_day in cursor:
            nexts = rules.due(
                Every(every),
                opened=opened.astimezone(UTC),
                after=through,
                until=moment,
                zone=ZoneInfo(zone),
                anchor_day=anchor_day,
            )
            first = next(nexts, None)
            if first is not None and (ends is None or first < ends):
                wallets.add(wallet)
    return wallets


_RULES = """
SELECT w.id, r.every, greatest(w.opened_at, r.begins_at), a.through, r.ends_at, t.timezone, t.anchor_day
FROM billing_wallet w JOIN billing_grantrule r ON r.scheme_id = w.scheme_id JOIN tenants_tenant t ON t.id = w.tenant_id
LEFT JOIN billing_accrual a ON a.wallet_id = w.id AND a.rule_id = r.id
"""


def _expiring(moment: datetime) -> set[int]:
    """The wallets with a grant to sweep, and those of which it is told apart in their zone only."""
    last = (moment - SWEEP_AFTER).date() + timedelta(days=1)
    return set(WalletGrant.objects.filter(left__gt=0, expires_on__lte=last).values_list("wallet", flat=True))
