"""Booking what was used: each wallet's service days are brought to what rating says of them.

Totals are compared, not events: whatever the order and however often, the same amounts are booked.
Usage that happened is booked in full, below the limit if need be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import NamedTuple

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Greatest

from billing.models.rated import COST
from billing.models.wallets import Wallet, WalletBooking, WalletScheme, WalletScope, WalletTotal
from billing.rules.meters import SECONDS_PER_HOUR
from billing.rules.money import Money
from billing.wallets import batch, replay, reservation_holds
from billing.wallets.caps import used_by
from billing.wallets.entries import locked
from billing.wallets.replay import Change
from portal.core.tenants.models import Tenant


class Owner(NamedTuple):
    """Whose wallet of a scheme: a project's, a user's, or, with neither, the tenant's."""

    project: int | None
    user: str


def book_due(*, moment: datetime) -> int:
    """Book for every tenant whose totals have changed, each in its own transaction; how many.

    One that cannot be booked stays due and holds up no other. Raises LeftOverError at the end.
    """
    due = list(WalletBooking.objects.filter(due=True).order_by("pk").values_list("pk", flat=True))
    tenants = Tenant.objects.filter(pk__in=due).order_by("pk")
    batch.run_isolated(tenants, lambda tenant: book(tenant=tenant, moment=moment))
    return len(due)


@transaction.atomic
def book(*, tenant: Tenant, moment: datetime) -> None:
    """Book what was rated since the last time; asked again, nothing is left to book.

    Wallets that are needed and not there are opened. Nothing is rated for the tenant meanwhile.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    state, _ = WalletBooking.objects.get_or_create(tenant=tenant)
    columns = ("unit", "day", "project", "user")
    totals = WalletTotal.objects.filter(tenant=tenant).annotate(
        newest=Greatest("last_rated_id", "price__corrected_through")
    )
    changed = totals.filter(newest__gt=state.rated_through).values_list(*columns)
    news = list(changed.annotate(last=Max("newest")).order_by(*columns))
    for unit in sorted({row[0] for row in news}):
        _book_unit(tenant, unit, [row[1:4] for row in news if row[0] == unit], moment)
    state.rated_through = max([state.rated_through, *(row[4] for row in news)])
    state.due = False
    state.save()
    reservation_holds.adjust_holds(tenant=tenant, moment=moment)


def wallet_of(scheme: WalletScheme, owner: Owner) -> Wallet:
    """The owner's wallet, opened where there is none yet."""
    row = Wallet.objects.filter(scheme=scheme, project=owner.project, user=owner.user).first()
    return row or Wallet.objects.create(
        scheme=scheme,
        tenant_id=scheme.tenant_id,
        project_id=owner.project,
        user=owner.user,
        unit=scheme.unit,
        opened_at=scheme.since,
    )


def _book_unit(tenant: Tenant, unit: str, news: Iterable[tuple[date, int, str]], moment: datetime) -> None:
    scheme = WalletScheme.objects.filter(tenant=tenant, unit=unit).first() or _plain(tenant, unit)
    days: dict[Owner, set[date]] = defaultdict(set)
    for day, project, user in news:
        days[owner_of(scheme, project, user)].add(day)
    wallets = {owner: wallet_of(scheme, owner) for owner in sorted(days, key=str)}
    rows = locked(wallet.pk for wallet in wallets.values())
    for owner, wallet in wallets.items():
        row = rows[wallet.pk]
        replay.settle(wallet=row, moment=moment, change=Change(use=_owed(row, days[owner])))


def _plain(tenant: Tenant, unit: str) -> WalletScheme:
    """Nobody said how: one wallet for the tenant, empty from the beginning, so that its debt is seen."""
    start = datetime(1970, 1, 1, tzinfo=UTC)
    return WalletScheme.objects.create(tenant=tenant, unit=unit, since=start)


def owner_of(scheme: WalletScheme, project: int, user: str) -> Owner:
    """Whose wallet pays what the user of the project uses."""
    if scheme.scope == WalletScope.PROJECT:
        return Owner(project, "")
    return Owner(None, user if scheme.scope == WalletScope.USER else "")


def _owed(wallet: Wallet, days: Iterable[date]) -> dict[date, int]:
    """What the days come to, in smallest units: rounded once, per day."""
    totals = WalletTotal.objects.filter(used_by(wallet), day__in=list(days))
    exact: dict[date, Fraction] = defaultdict(Fraction)
    for day, share_den, amount in totals.values_list("day", "share_den").annotate(sum=COST):
        exact[day] += Fraction(amount) / share_den / SECONDS_PER_HOUR
    return {day: Money(amount, wallet.unit).rounded().minor for day, amount in sorted(exact.items())}
