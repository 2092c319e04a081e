"""Reserving: the worst case of a job is set aside of every quota and wallet that counts it, or it is refused.

Whoever reserves holds the rows of the wallets that pay for the job, and of the tenant's quotas, until all is written:
of twenty who ask at once, each sees what those before it hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil

from django.db import connection, transaction
from msgspec import structs

from billing.admission.check import JobCheck, check_job, owner_now
from billing.admission.wallets import list_paying
from billing.models import Quota, Reservation, ReservationEnd, ReservedAmount, WalletBooking
from billing.models.reservations import LAPSED
from billing.quotas.counters import UNSEEN
from billing.reservations.progress import load_progress
from billing.simulation.quotes import QuoteError, account_of, read_length
from billing.wallets.booking import book
from billing.wallets.entries import locked
from billing.wallets.reservation_holds import hold_key
from billing.wallets.wallet_holds import hold, release
from clusters.connectors.base import UsageFact
from clusters.models import Cluster
from portal.core.events import events
from portal.core.events.events import Fact
from portal.core.events.models import EventType
from portal.core.tenants.models import Ownership, Tenant

TIME_TO_COME = timedelta(minutes=15)
"""After so long a reservation goes whose job's id nobody said."""
MOST_TASKS = 1_000_000
MOST_GPUS = 10_000_000
SCALED = ("gpus", "cpu_milli", "memory_mib", "nodes")


@dataclass(frozen=True, slots=True)
class Array:
    """How many tasks a job has, and how many of them are held: all, or as many as may run at once (`%8`)."""

    tasks: int = 1
    at_once: int | None = None

    @property
    def slots(self) -> int:
        return self.tasks if self.at_once is None else min(self.tasks, self.at_once)


@dataclass(frozen=True, slots=True)
class Placement:
    """`reservation`: what stands; None where it was refused. `check`: why, and how quotas stand; None if it stood."""

    reservation: Reservation | None
    check: JobCheck | None


@transaction.atomic
def reserve_job(
    *,
    cluster: Cluster,
    key: str,
    job: UsageFact,
    array: Array = Array(),
    job_id: str = "",
    lasts: timedelta = TIME_TO_COME,
    now: datetime,
) -> Placement | None:
    """Hold what the job may come to until its time limit, under a key of the caller's; None of an account of nobody.

    Asked again with the same, the same reservation, with its job's id once that is said. Asked with something else,
    that takes its place, or is refused and leaves it. A key that was released is free: a job that is requeued is held
    anew. A job has one reservation: asked with its id under another key, that one is meant; it stays as it is where
    something stood under that key, too, for that knew no job. Raises QuoteError.
    """
    seconds = read_length(job)
    if not 0 < array.slots <= array.tasks <= MOST_TASKS or job.gpus * array.slots > MOST_GPUS:
        raise QuoteError("job-array", most=MOST_TASKS, gpus=MOST_GPUS)
    tenant = owner_now(cluster, job.account, now)
    if tenant is None:
        return None
    row, had_both = _lock_current(cluster, key, job_id, tenant, now)
    if row is not None and had_both:
        return Placement(row, None)
    if row is not None and job_id and row.job_id == job_id and array.tasks < row.tasks:
        # An array loses no tasks: those that ended are not seen any more.
        array = Array(row.tasks, array.at_once)
    shape = _digest(job, seconds, array)
    if row is not None and row.shape == shape and not _is_another(row, job_id):
        _say_job(row, job_id)
        return Placement(row, None)
    owner = account_of(tenant, cluster.name, job.account, now)
    _lock_all(row, owner, job.user, now)
    earlier = None if _is_another(row, job_id) else row
    worst = _scaled(job, array, seconds - _seconds_used(earlier, tenant, now))
    check = check_job(
        tenant=tenant, cluster=cluster.name, job=worst, now=now, besides=row.pk if row is not None else 0
    )
    if not check.may_run:
        return Placement(None, check)
    if row is not None and earlier is None:
        _close(row, ReservationEnd.RELEASED, now)
    row = _write(earlier, owner, cluster, key, job, array, seconds, shape, job_id, now)
    row.expires_at = None if row.job_id else now + lasts
    row.save()
    _hold(row, check, now)
    return Placement(row, check)


@transaction.atomic
def release_key(*, cluster: Cluster, key: str, now: datetime) -> bool:
    """Give free what is held under the key; False where nothing is (any more)."""
    take_turn(cluster, key)
    row = Reservation.objects.select_for_update().filter(cluster=cluster, key=key, released_at=None).first()
    if row is not None:
        end(row, ReservationEnd.RELEASED, now)
    return row is not None


def end(row: Reservation, why: ReservationEnd, now: datetime) -> None:
    """Give free all that it holds, when the last seconds of its job are booked; tell of what nobody asked for.

    For a caller who has locked it, and neither quotas nor wallets.
    """
    _book(row, now)
    _close(row, why, now)
    if why in LAPSED:
        quotas = row.amounts.filter(quota__isnull=False).order_by("quota").values_list("quota", flat=True)
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


def _close(row: Reservation, why: ReservationEnd, now: datetime) -> None:
    row.released_at, row.end = now, why
    row.save(update_fields=["released_at", "end"])
    _let_go(row, now)


def _book(row: Reservation, now: datetime) -> None:
    """Have what is rated of its job booked: until then it is in the balance of the wallet that holds for it."""
    is_paid = row.amounts.filter(wallet__isnull=False).exists()
    if is_paid and WalletBooking.objects.filter(tenant=row.tenant_id, due=True).exists():
        book(tenant=row.tenant, moment=now)


def take_turn(cluster: Cluster, key: str) -> None:
    """Until the transaction ends, nobody else places or ends a reservation under the key."""
    digest = hashlib.sha256(f"{cluster.pk} {key}".encode()).digest()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [int.from_bytes(digest[:8], signed=True)])


def _lock_current(
    cluster: Cluster, key: str, job_id: str, tenant: Tenant, now: datetime
) -> tuple[Reservation | None, bool]:
    """The reservation of the job, or under the key, locked; one that expired, or is of another tenant, is ended. And
    whether there were both: then the one under the key is given free.
    """
    take_turn(cluster, key)
    if job_id:
        take_turn(cluster, f"job {job_id}")  # before any row: two who ask under two keys wait in one order
    rows = Reservation.objects.select_for_update().filter(cluster=cluster, released_at=None)
    own = rows.filter(key=key).first()
    other = rows.filter(job_id=job_id).exclude(key=key).order_by("pk").first() if job_id else None
    if own is not None and other is not None:
        end(own, ReservationEnd.RELEASED, now)
    row = other or own
    if row is not None and row.expires_at is not None and row.expires_at <= now:
        end(row, ReservationEnd.NEVER_CAME, now)
        row = None
    if row is not None and row.tenant_id != tenant.pk:
        end(row, ReservationEnd.RELEASED, now)
        row = None
    return row, own is not None and other is not None


def _is_another(row: Reservation | None, job_id: str) -> bool:
    """Whether the reservation is for another job than this one."""
    return row is not None and bool(job_id and row.job_id) and row.job_id != job_id


def _say_job(row: Reservation, job_id: str) -> None:
    if job_id and row.job_id != job_id:
        row.job_id, row.expires_at = job_id, None
        row.save(update_fields=["job_id", "expires_at"])


def _lock_all(row: Reservation | None, owner: Ownership, user: str, now: datetime) -> None:
    """Nobody else reserves meanwhile of what pays for the job or counts it. Wallets first, as by whoever books."""
    held = []
    if row is not None:
        _book(row, now)
        held = [amount.wallet_id for amount in _of_wallets(row) if amount.wallet_id is not None]
    locked({*held, *(wallet.pk for wallet in list_paying(owner, user))})
    quotas = Quota.objects.in_force().filter(tenant=owner.tenant_id)
    list(quotas.order_by("pk").select_for_update(no_key=True).values_list("pk"))


def _seconds_used(row: Reservation | None, tenant: Tenant, now: datetime) -> int:
    """Of a plain job that runs already, the seconds that are rated: what figures count on since is in both."""
    if row is None or row.tasks > 1:
        return 0
    progress = load_progress([tenant.pk], moment=now, unseen=UNSEEN).get(row.pk)
    return 0 if progress is None else max(0, row.seconds - progress.left(rated_only=True))


def _scaled(job: UsageFact, array: Array, seconds: int) -> UsageFact:
    """All held tasks as one job, of so many seconds."""
    values = {name: getattr(job, name) * array.slots for name in SCALED}
    end_second = (job.started or 0) + max(1, seconds)
    return structs.replace(job, **values, ended=end_second, seen_until=end_second)


def _write(
    row: Reservation | None,
    owner: Ownership,
    cluster: Cluster,
    key: str,
    job: UsageFact,
    array: Array,
    seconds: int,
    shape: str,
    job_id: str,
    now: datetime,
) -> Reservation:
    if row is not None:
        _let_go(row, now)
        row.amounts.all().delete()
    row = row or Reservation(
        cluster=cluster, key=key, placed_at=now, runs_after=_runs_before(cluster, key, job_id, now)
    )
    row.job_id = job_id or row.job_id
    row.tenant_id, row.project_id = owner.tenant_id, owner.project_id
    row.account, row.gpus, row.seconds = owner.account.name, job.gpus, seconds
    row.tasks, row.at_once, row.shape = array.tasks, array.slots, shape
    return row


def _runs_before(cluster: Cluster, key: str, job_id: str, now: datetime) -> int:
    """Of a job that is requeued, the moment in which its earlier reservation ended; else whatever runs is its run.

    Clocks differ: of a key that is new, a run that ended within the last ten minutes may be the job's.
    """
    rows = Reservation.objects.filter(cluster=cluster, key=key).exclude(job_id="")
    rows = rows.filter(job_id=job_id) if job_id else rows
    earlier = rows.order_by("-released_at").first()
    if earlier is not None and earlier.released_at is not None:
        return int(earlier.released_at.timestamp())
    return int((now - timedelta(minutes=10)).timestamp())


def _hold(row: Reservation, check: JobCheck, now: datetime) -> None:
    amounts = [
        ReservedAmount(
            reservation=row,
            tenant_id=row.tenant_id,
            quota=need.status.quota,
            amount=_rounded_up(need.amount),
            seconds=need.within,
            most=need.status.quota.reservation_cap,
        )
        for need in check.needs
    ]
    for need in sorted(check.wallets, key=lambda need: need.wallet.pk):
        hold(wallet=need.wallet, amount=need.amount, key=hold_key(row.pk), moment=now)
        amounts.append(
            ReservedAmount(
                reservation=row,
                tenant_id=row.tenant_id,
                wallet=need.wallet,
                amount=Decimal(need.amount),
                seconds=check.seconds,
            )
        )
    ReservedAmount.objects.bulk_create(amounts)


def _let_go(row: Reservation, now: datetime) -> None:
    for amount in _of_wallets(row):
        if amount.wallet is not None:
            release(wallet=amount.wallet, key=hold_key(row.pk), moment=now)


def _of_wallets(row: Reservation) -> Sequence[ReservedAmount]:
    return list(row.amounts.filter(wallet__isnull=False).select_related("wallet").order_by("wallet"))


def _rounded_up(value: Fraction) -> Decimal:
    """To twelve decimals."""
    return Decimal(f"{ceil(value * 10**12)}e-12")


def _digest(job: UsageFact, seconds: int, array: Array) -> str:
    names = (
        "account",
        "user",
        "queue",
        "qos",
        "priority_class",
        "gpus",
        "gpu_model",
        "mig_profile",
        "cpu_milli",
    )
    values = [getattr(job, name) for name in (*names, "memory_mib")]
    text = json.dumps([*values, *job.gpu_share, seconds, array.tasks, array.slots])
    return hashlib.sha256(text.encode()).hexdigest()
