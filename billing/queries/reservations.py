"""A tenant's reservations for its page: those that stand, with what is left of each, and those that lapsed lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter

from billing.models import Reservation
from billing.reservations.progress import Progress, load_progress
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
    progress: Mapping[int, Progress] = field(default_factory=dict)  # of all that stand


def list_reservations(tenant: Tenant, *, moment: datetime, unseen: int) -> Reservations:
    """Those of the tenant. One query. `unseen`: as of `load_progress`."""
    both = load_progress([tenant.pk], moment=moment, unseen=unseen, lapsed_since=moment - LAPSED_FOR)
    progress = {pk: one for pk, one in both.items() if one.row.released_at is None}
    standing = sorted(progress.values(), key=attrgetter("row.placed_at", "row.pk"), reverse=True)
    lapsed = [one.row for pk, one in both.items() if pk not in progress]
    return Reservations(
        [StandingReservation(one.row, one.left(), one.names) for one in standing[:SHOWN]],
        len(standing),
        sorted(lapsed, key=attrgetter("released_at", "pk"), reverse=True)[:SHOWN],
        progress,
    )
