"""A tenant's reservations for its page: those that stand, with what is left of each, and those that lapsed lately."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter

from django.db.models import Q

from billing.models import Reservation, ReservedAmount
from billing.models.reservations import LAPSED
from billing.reservations.progress import load_progress
from portal.core.tenants.models import Tenant

SHOWN = 50
LAPSED_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class StandingReservation:
    """`seconds`: that its tasks may still use, together."""

    row: Reservation
    seconds: int
    names: Sequence[str]  # of the budgets and wallets that it holds something of


@dataclass(frozen=True, slots=True)
class Reservations:
    """The first of each, the newest first, and how many stand."""

    standing: Sequence[StandingReservation] = field(default=())
    count: int = 0
    lapsed: Sequence[Reservation] = field(default=())


def list_reservations(tenant: Tenant, *, moment: datetime, unseen: int) -> Reservations:
    """Those of the tenant. Three queries; one where none stands. `unseen`: as of `load_progress`."""
    own = Reservation.objects.filter(tenant=tenant).select_related("cluster")
    rows = own.filter(Q(expires_at=None) | Q(expires_at__gt=moment), released_at=None)
    ended = own.filter(end__in=LAPSED, released_at__gt=moment - LAPSED_FOR)
    newest = rows.order_by("-placed_at", "-pk")[:SHOWN]
    listed = list(newest.union(ended.order_by("-released_at", "-pk")[:SHOWN], all=True))
    shown = sorted(
        (row for row in listed if row.released_at is None), key=attrgetter("placed_at", "pk"), reverse=True
    )
    lapsed = sorted(
        (row for row in listed if row.released_at), key=attrgetter("released_at", "pk"), reverse=True
    )
    if not shown:
        return Reservations(lapsed=lapsed)
    progress = load_progress([tenant.pk], moment=moment, unseen=unseen)
    names: dict[int, list[str]] = defaultdict(list)
    amounts = ReservedAmount.objects.filter(reservation__in=shown).order_by("quota__name", "pk")
    for amount in amounts.select_related("quota", "wallet__project", "wallet__tenant"):
        names[amount.reservation_id].append(amount.quota.name if amount.quota else str(amount.wallet))
    standing = [
        StandingReservation(row, progress[row.pk].left() if row.pk in progress else 0, names[row.pk])
        for row in shown
    ]
    return Reservations(standing, len(shown) if len(shown) < SHOWN else rows.count(), lapsed)
