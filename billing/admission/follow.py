"""Standing reservations are compared with the jobs that were read since: those that are over are released, and told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction

from billing.admission.reserve import end, take_turn
from billing.models import Reservation, ReservationEnd, ReservedAmount
from billing.models.reservations import LAPSED
from billing.reservations.progress import sql
from billing.wallets import batch
from billing.wallets.booking import book
from portal.core.tenants.models import Tenant

PATIENCE_HOURS = 24
"""So long a cluster is read without a sign of a job until its reservation goes."""
RETENTION = timedelta(days=90)


@dataclass(slots=True)
class FollowTally:
    """How many reservations a pass has released: of jobs that ended, and those that lapsed."""

    ended: int = 0
    lapsed: int = 0


def follow_reservations(*, moment: datetime) -> FollowTally:
    """Release what is over, each in a transaction of its own; killed or doubled, each is released and told once.

    One that cannot be released holds up no other. Raises LeftOverError at the end.
    """
    tally = FollowTally()
    Reservation.objects.filter(released_at__lt=moment - RETENTION).delete()
    if not Reservation.objects.filter(released_at=None).exists():
        return tally
    with connection.cursor() as cursor:
        cursor.execute(sql.LINK)
        begun = {tenant for (tenant,) in cursor.fetchall()}
    rows = _list_over(moment)
    try:
        batch.run_isolated(_list_paying(begun), lambda tenant: book(tenant=tenant, moment=moment))
    finally:
        batch.run_isolated(rows, lambda pk: _release(pk, tally, moment))
    return tally


def _list_paying(tenants: Collection[int]) -> Sequence[Tenant]:
    """Of jobs that have begun: what they hold of wallets shrinks by what is rated of them already."""
    standing = ReservedAmount.objects.filter(reservation__tenant__in=tenants, reservation__released_at=None)
    paying = standing.filter(wallet__isnull=False).values("tenant")
    return list(Tenant.objects.filter(pk__in=paying).order_by("pk"))


def _list_over(moment: datetime, *, only: int | None = None) -> dict[int, ReservationEnd]:
    """What is to be released, and why."""
    with connection.cursor() as cursor:
        cursor.execute(sql.OVER, {"moment": moment, "hours": PATIENCE_HOURS, "only": only})
        return {pk: ReservationEnd(why) for pk, why in cursor.fetchall()}


@transaction.atomic
def _release(pk: int, tally: FollowTally, moment: datetime) -> None:
    """Unless somebody else has, or another job has taken its place meanwhile."""
    row = Reservation.objects.select_related("cluster").get(pk=pk)
    take_turn(row.cluster, row.key)
    row = Reservation.objects.select_for_update().get(pk=pk)
    why = _list_over(moment, only=pk).get(pk)
    if why is not None:
        end(row, why, moment)
        tally.lapsed += why in LAPSED
        tally.ended += why == ReservationEnd.ENDED
