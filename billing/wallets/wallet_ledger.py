"""What the ledger of a wallet says from a day on: its grants, what each day used, and which grant has paid for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Exists, OuterRef, Q, Sum

from billing.models import BillingPeriod, PeriodTotal, Verdict
from billing.models.wallets import EntrySide, Wallet, WalletDay, WalletEntry, WalletGrant
from billing.rules.wallet_course import gone_on
from billing.wallets.entries import Booking, pays_first


@dataclass(slots=True)
class Ledger:
    """Days before `since` stand as they are, but for debts that grants of later days have paid."""

    since: date
    rows: dict[int, WalletGrant]  # that can pay from then on, were given, or have something left
    pools: dict[int, int]  # by grant what it has for days from `since` on: given, less what invoices took
    dayed: dict[
        tuple[date, int | None], int
    ]  # balance entries by service day and grant, those of debts included
    booked: dict[date, int]  # use by day, from `since` on
    waits_from: date  # what expires after that day waits for open periods
    closed: list[
        tuple[date, date]
    ]  # periods that it waited for: their first days, and the days after their close

    def goes_on(self, expires_on: date) -> date:
        """The day with which a grant that nothing has to wait for leaves the balance."""
        waited = (after for start, after in self.closed if start < expires_on)
        return max([gone_on(expires_on), *waited])

    def drawn(self) -> dict[date, int]:
        """By day from `since` on what was taken for it: used, spent, or gone with a grant that nobody knows."""
        amounts: dict[date, int] = defaultdict(int)
        for (day, _), amount in self.dayed.items():
            amounts[day] -= amount
        return {day: amount for day, amount in amounts.items() if day >= self.since}

    def debts(self) -> dict[date, int]:
        """What was unpaid of earlier days when `since` began."""
        amounts: dict[date, int] = defaultdict(int)
        for (day, _), amount in self.dayed.items():
            if day < self.since:
                amounts[day] -= amount
        return {day: amount for day, amount in amounts.items() if amount}


def read_ledger(wallet: Wallet, *, since: date, bookings: Iterable[Booking]) -> Ledger:
    """The ledger of a locked wallet, as it will be with `bookings`, which touch no day and no grant before `since`."""
    entries = WalletEntry.objects.filter(wallet=wallet, side=EntrySide.BALANCE).order_by("day", "grant")
    amounts: Counter[tuple[date, int | None]] = Counter()
    debts = Q(grant=None) | Q(grant__usable_from__gte=since)
    for which in (entries.filter(day__gte=since), entries.filter(debts, day__lt=since)):
        for day, grant, amount in which.values_list("day", "grant").annotate(sum=Sum("amount")):
            amounts[day, grant] += int(amount)
    waits_from = waits_from_of(wallet)
    pays = Q(usable_from__gte=since) | Q(left__gt=0) | Q(pk__in={grant for _, grant in amounts if grant})
    pays |= Q(expired__gt=0) & (Q(gone_on__gt=since) | Q(expires_on__gt=waits_from))
    rows = {row.pk: row for row in WalletGrant.objects.filter(pays, wallet=wallet)}
    pools = {pk: row.left + row.expired for pk, row in rows.items()}
    for (_, grant), amount in amounts.items():
        if grant is not None:
            pools[grant] -= amount
    for booking in bookings:
        for piece in booking.pieces:
            if piece.grant is not None:
                pools[piece.grant] += piece.amount
            elif booking.day is not None:
                amounts[booking.day, None] += piece.amount
    booked = WalletDay.objects.filter(wallet=wallet, day__gte=since).values_list("day", "booked")
    return Ledger(since, rows, pools, dict(amounts), dict(booked), waits_from, _closed(wallet))


def waits_from_of(wallet: Wallet) -> date:
    """From which day on what expires is kept for invoices that are not issued yet; `date.max` where none are to come.

    An open period waits for its invoice. One in which nothing is charged, and after which another is closed, has none.
    """
    if not pays_first(wallet.tenant_id, wallet.unit):
        return date.max
    periods = BillingPeriod.objects.filter(tenant=wallet.tenant_id)
    charged = PeriodTotal.objects.filter(verdict__in=(Verdict.CHARGED, Verdict.UNPRICED)).exclude(units=0)
    own = charged.filter(period=OuterRef("pk"), payer=None)
    others = charged.filter(
        payer=wallet.tenant_id, period__start__lt=OuterRef("end"), period__end__gt=OuterRef("start")
    )
    closed = periods.filter(start__gt=OuterRef("start"), closed_at__isnull=False)
    due = periods.filter(Exists(own) | Exists(others) | ~Exists(closed), closed_at=None)
    first = due.order_by("start").values_list("start", "timezone").first()
    return date.max if first is None else first[0].astimezone(ZoneInfo(first[1])).date()


def _closed(wallet: Wallet) -> list[tuple[date, date]]:
    if not pays_first(wallet.tenant_id, wallet.unit):
        return []
    periods = BillingPeriod.objects.filter(tenant=wallet.tenant_id, closed_at__isnull=False)
    rows = periods.values_list("start", "timezone", "closed_at")
    zone, day = wallet.tenant.zone, timedelta(days=1)
    return [
        (start.astimezone(ZoneInfo(of)).date(), closed_at.astimezone(zone).date() + day)
        for start, of, closed_at in rows
        if closed_at is not None
    ]
