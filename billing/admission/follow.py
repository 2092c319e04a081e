"""Standing reservations are compared with the jobs that were read since: those that are over are released, and told."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction

from billing.admission.reserve import end, take_turn
from billing.models import Reservation, ReservationEnd, ReservedAmount, WalletBooking
from billing.reservations.progress import sql
from billing.wallets.booking import book
from portal.core.events import events
from portal.core.events.events import Fact
from portal.core.events.models import EventType
from portal.core.tenants.models import Tenant

PATIENCE_HOURS = 24
"""So long a cluster is read without a sign of a job until its reservation goes."""
KEPT_FOR = timedelta(days=90)
LAPSED = (ReservationEnd.NEVER_CAME, ReservationEnd.VANISHED)
"""Ends that nobody asked for, and that are told."""


@dataclass(slots=True)
class FollowTally:
    """How many reservations a pass has released: of jobs that ended, and those that lapsed."""

    ended: int = 0
    lapsed: int = 0


def follow_reservations(*, moment: datetime) -> FollowTally:
    """Release what is over, each in a transaction of its own; killed or doubled, each is released and told once."""
    tally = FollowTally()
    if not Reservation.objects.filter(released_at=None).exists():
        return tally
    with connection.cursor() as cursor:
        cursor.execute(sql.LINK)
        _book_new({tenant for (tenant,) in cursor.fetchall()}, moment)
        cursor.execute(sql.OVER, {"moment": moment, "hours": PATIENCE_HOURS})
        rows = cursor.fetchall()
    for pk, why in rows:
        if _release(pk, ReservationEnd(why), moment):
            tally.lapsed += why in LAPSED
            tally.ended += why == ReservationEnd.ENDED
    Reservation.objects.filter(released_at__lt=moment - KEPT_FOR).delete()
    return tally


def _book_new(tenants: Collection[int], moment: datetime) -> None:
    """Of jobs that have begun: what they hold of wallets shrinks by what is rated of them already."""
    paying = ReservedAmount.objects.filter(tenant__in=tenants, wallet__isnull=False).values("tenant")
    for tenant in Tenant.objects.filter(pk__in=paying).order_by("pk"):
        book(tenant=tenant, moment=moment)


@transaction.atomic
def _release(pk: int, why: ReservationEnd, moment: datetime) -> bool:
    """False where somebody else has, or where its job has come meanwhile."""
    row = Reservation.objects.select_related("cluster", "tenant").get(pk=pk)
    take_turn(row.cluster, row.key)
    row = Reservation.objects.select_related("cluster", "tenant").select_for_update(of=("self",)).get(pk=pk)
    if row.released_at is not None:
        return False
    if why == ReservationEnd.NEVER_CAME and (row.expires_at is None or row.expires_at > moment):
        return False
    is_paid = row.amounts.filter(wallet__isnull=False).exists()
    if is_paid and WalletBooking.objects.filter(tenant=row.tenant, due=True).exists():
        book(tenant=row.tenant, moment=moment)  # so that its last seconds are booked before they are free
    end(row, why, moment)
    if why in LAPSED:
        quotas = [amount.quota_id for amount in row.amounts.order_by("quota") if amount.quota_id]
        events.record_many(
            Fact(
                type=EventType.QUOTA_RESERVATION_LAPSED,
                kind="quo",
                key=quota,
                state=why.value,
                tenant=row.tenant_id,
            )
            for quota in quotas
        )
    return True
