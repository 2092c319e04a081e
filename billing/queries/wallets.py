"""A tenant's wallets for its pages: how they stand, and what was booked on one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django.db import connection
from django.db.models import Count, Sum

from billing.models import EntrySide, Wallet, WalletEntry, WalletGrant
from portal.core import pagination
from portal.core.pagination import Page
from portal.core.tenants.models import Tenant

PAGE = 50  # rows of a list
ENTRIES = 4  # of a booking, one for each grant that it touches; where there are more, more are read


@dataclass(frozen=True, slots=True)
class Booked:
    """One booking as the balance saw it. Amounts in smallest units of the wallet's unit."""

    last: int  # its newest entry: the cursor
    at: datetime
    day: date | None  # of service
    memo: str
    amount: int  # signed
    balance: int  # after it


@dataclass(frozen=True, slots=True)
class WalletStatement:
    """Bookings, newest first; `older` is the cursor of what follows, 0 for nothing."""

    wallet: Wallet
    rows: Sequence[Booked]
    older: int
    grants: Sequence[WalletGrant]  # with something left, in burn order


def wallets(tenant: Tenant, *, after: str = "") -> Page[Wallet]:
    """The tenant's wallets in the order of their opening. One query."""
    rows = Wallet.objects.filter(tenant=tenant).select_related("project", "scheme", "tenant")
    return pagination.page(rows, "id", after=after, size=PAGE)


def balances(tenant: Tenant) -> list[tuple[str, int, int]]:
    """By unit, the sum of the tenant's wallets and how many they are. One query."""
    units = Wallet.objects.filter(tenant=tenant).order_by("unit").values_list("unit")
    return [
        (unit, int(balance), count) for unit, balance, count in units.annotate(Sum("balance"), Count("pk"))
    ]


def statement(tenant: Tenant, wallet: int, *, before: int = 0) -> WalletStatement | None:
    """The wallet's statement from the cursor `before` on; None where the tenant has no such wallet."""
    selection = Wallet.objects.filter(tenant=tenant, pk=wallet).select_related("project", "scheme", "tenant")
    row = selection.first()
    if row is None:
        return None
    bookings = _newest(row, before)
    after = _balance_before(row, before)
    rows = []
    for last, at, day, memo, amount, _ in bookings[:PAGE]:
        rows.append(Booked(last, at, day, memo, amount, after))
        after -= amount
    older = rows[-1].last if len(bookings) > PAGE else 0
    grants = WalletGrant.objects.filter(wallet=row, left__gt=0)
    return WalletStatement(
        row, rows, older, list(grants.order_by("priority", "expires_on", "usable_from", "pk")[:PAGE])
    )


@dataclass(frozen=True, slots=True)
class Month:
    """What was booked on a wallet from one midnight to another. opening + given − used − … = closing.

    `sums` are by where amounts came from and went to, signed as the balance saw them; in smallest units.
    """

    wallet: Wallet
    opening: int
    sums: dict[EntrySide, int]
    closing: int
    rows: Sequence[Booked]  # in order; the first ones where they are more than asked for
    count: int  # of all bookings


def of_month(tenant: Tenant, wallet: int, *, since: datetime, until: datetime, limit: int) -> Month | None:
    """The bookings of [since, until), by when they were booked; None where the tenant has no such wallet."""
    selection = Wallet.objects.filter(tenant=tenant, pk=wallet).select_related("project", "scheme", "tenant")
    row = selection.first()
    if row is None:
        return None
    opening = _balance(row, "at >= %s", since)
    entries = WalletEntry.objects.filter(wallet=row)
    within = entries.filter(at__gte=since, at__lt=until).exclude(side=EntrySide.BALANCE)
    sums = {
        EntrySide(side): -int(amount)
        for side, amount in within.order_by("side").values_list("side").annotate(sum=Sum("amount"))
    }
    with connection.cursor() as cursor:
        cursor.execute(_MONTH, {"wallet": row.pk, "since": since, "until": until, "limit": limit})
        bookings = cursor.fetchall()
    rows = [
        Booked(last, at, day, memo, int(amount), opening + int(after))
        for last, at, day, memo, amount, after, _ in bookings
    ]
    return Month(row, opening, sums, opening + sum(sums.values()), rows, bookings[0][-1] if bookings else 0)


def _newest(wallet: Wallet, before: int) -> list[tuple[int, datetime, date | None, str, int, int]]:
    """The newest bookings behind the cursor, more than a page of them where there are.

    A wallet that pays usage has hundreds of thousands, so no more entries are read than it takes. One that moves
    within the balance alone is nothing to its owner.
    """
    read = PAGE * ENTRIES
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_BOOKINGS, {"wallet": wallet.pk, "before": before or None, "read": read})
            bookings = [(*columns, int(amount), int(count)) for *columns, amount, count in cursor.fetchall()]
        is_all = sum(row[-1] for row in bookings) < read
        whole = bookings if is_all else bookings[:-1]  # of the last one some entries may not have been read
        rows = [row for row in whole if row[-2]]
        if is_all or len(rows) > PAGE:
            return rows
        read *= 8


def _balance_before(wallet: Wallet, cursor: int) -> int:
    return _balance(wallet, "id >= %s", cursor) if cursor else wallet.balance


def _balance(wallet: Wallet, later: str, than: int | datetime) -> int:
    """What the wallet held before these entries: what is asked for is mostly recent, so they are the fewer."""
    with connection.cursor() as cursor:
        cursor.execute(_BALANCE.format(later=later), [wallet.pk, than, wallet.pk])
        (balance,) = cursor.fetchone()
    return int(balance)


_BALANCE = """
SELECT balance - (SELECT coalesce(sum(amount), 0) FROM billing_walletentry
                  WHERE wallet_id = %s AND side = 'balance' AND {later})
FROM billing_wallet WHERE id = %s
"""

_MONTH = """
SELECT *, sum(amount) OVER (ORDER BY at, id) AS after, count(*) OVER () FROM (
    SELECT min(id) AS id, min(at) AS at, min(day) AS day, min(memo) AS memo, sum(amount) AS amount
    FROM billing_walletentry
    WHERE wallet_id = %(wallet)s AND side = 'balance' AND at >= %(since)s AND at < %(until)s
    GROUP BY booking HAVING sum(amount) <> 0
) booked ORDER BY at, id LIMIT %(limit)s
"""

# A booking's entries stand together.
_BOOKINGS = """
SELECT min(id), min(at), min(day), min(memo), sum(amount), count(*) FROM (
    SELECT * FROM billing_walletentry
    WHERE wallet_id = %(wallet)s AND side = 'balance' AND (%(before)s::bigint IS NULL OR id < %(before)s)
    ORDER BY id DESC LIMIT %(read)s
) newest
GROUP BY booking ORDER BY min(id) DESC
"""
