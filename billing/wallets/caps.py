"""What the caps of a wallet's rules look at: its balance at each instant at which one of them gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from django.db.models import Q, Sum

from billing.models.rated import COST
from billing.models.wallets import EntrySide, Wallet, WalletEntry, WalletScope, WalletTotal
from billing.rules.meters import SECONDS_PER_HOUR
from billing.rules.money import Money
from billing.rules.period import midnight
from billing.rules.wallet_course import Balance
from billing.wallets.entries import Booking

HOUR = 3600

_AFTER = timedelta(microseconds=1)
"""What is given at the instant at which an invoice is paid is given before: so the invoice found it."""


def balance(
    wallet: Wallet,
    *,
    since: date,
    days: Iterable[date],
    before: int,
    grants: Iterable[tuple[datetime, int]],
    bookings: Iterable[Booking],
    granted_at: Mapping[int, datetime],
) -> Balance:
    """What the wallet held when `since` began, and what moved it after that. Three queries.

    `before` is the balance then, but for what invoices took and gave back since; `grants` those of since then
    that follow no cap; `days` those on which caps look. What is taken back of a grant counts as never given.
    """
    begins = midnight(since, zone=wallet.tenant.zone)
    entries = WalletEntry.objects.filter(wallet=wallet)
    invoices = entries.filter(side=EntrySide.INVOICE, at__gte=begins)
    paid = [(at + _AFTER, -int(amount)) for at, amount in invoices.values_list("at", "amount")]
    spent = entries.filter(side__in=(EntrySide.SPENT, EntrySide.GRANTED), day__gte=since)
    flows = [*grants, *paid, *((at, -int(amount)) for at, amount in spent.values_list("at", "amount"))]
    for booking in bookings:
        at = booking.at if booking.grant is None else granted_at[booking.grant]
        at += _AFTER if booking.other == EntrySide.INVOICE else timedelta(0)
        flows.append((at, sum(piece.amount for piece in booking.pieces)))
    return Balance(
        opening=before - sum(amount for _, amount in paid),
        flows=sorted(flows),
        hours=_hours(wallet, days),
        rounded=lambda used: Money(used, wallet.unit).rounded().minor,
    )


def granted_amounts(wallet: Wallet, since: date) -> dict[int, int]:
    """What was given by each grant from `since` on, less what was taken back of it. One query."""
    rows = WalletEntry.objects.filter(
        wallet=wallet, side=EntrySide.GRANTED, day=None, grant__usable_from__gte=since
    )
    return {
        pk: -int(amount)
        for pk, amount in rows.order_by("grant").values_list("grant").annotate(sum=Sum("amount"))
    }


def used_by(wallet: Wallet) -> Q:
    """Whose totals are booked on the wallet."""
    whose = Q(tenant=wallet.tenant_id, unit=wallet.unit)
    if wallet.scheme.scope == WalletScope.PROJECT:
        whose &= Q(project=wallet.project_id)
    elif wallet.scheme.scope == WalletScope.USER:
        whose &= Q(user=wallet.user)
    return whose


def _hours(wallet: Wallet, days: Iterable[date]) -> dict[date, list[tuple[datetime, Fraction]]]:
    """By day what each of its hours used, exact, in order of their ends."""
    rows = WalletTotal.objects.filter(used_by(wallet), day__in=list(days))
    exact: dict[tuple[date, int], Fraction] = defaultdict(Fraction)
    for day, hour, den, amount in rows.values_list("day", "hour", "share_den").annotate(sum=COST):
        exact[day, hour] += Fraction(amount) / den / SECONDS_PER_HOUR
    by_day: dict[date, list[tuple[datetime, Fraction]]] = defaultdict(list)
    for (day, hour), used in sorted(exact.items()):
        by_day[day].append((datetime.fromtimestamp((hour + 1) * HOUR, UTC), used))
    return by_day
