"""Keeping what pages about efficiency show, where the jobs are many: a page requests it, a worker computes it.

A run's hours say together which finding each is in, and a job counts once, however many days it ran. So the figures of
some days are no sum of figures of single days. Whoever opens a page has a worker renew its snapshot once it has rested:
so it follows whatever came late, was corrected or moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from billing.models import EfficiencySnapshot
from billing.reports.reporting import Sums
from billing.reports.shapes import By
from billing.reports.waste import Cheaper
from clusters.models import Cluster
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope

LARGE: Final = 1_000
"""Jobs up to which a page computes its figures itself: some 0.1 ms for each."""
REST: Final = timedelta(minutes=5)
"""A snapshot is not renewed before."""
TIMES: Final = 100
"""Nor before it has rested so many times as long as it took, so renewing takes a hundredth of a processor at most."""
RETENTION: Final = timedelta(days=35)
"""After that a snapshot that nobody looked at is deleted."""
WAITING: Final = 5
"""Snapshots of an owner that wait for a worker at once; further ones wait for the page to be asked for again."""
STUCK: Final = timedelta(hours=1)
"""After that a snapshot that waits is requested again, and takes no place from others: its task has failed."""
HOURLY: Final = 600
"""Seconds in an hour after which no more of an owner's days are computed: documents wait for the same worker."""
MOST_KEPT: Final = 100
"""Snapshots of an owner; the oldest are deleted."""
PODS = 25  # jobs that are rows of their own
TOP_JOBS = 5  # that are named below a row
JOBS = 50  # that a finding opens to
WASTE = "waste"  # the part of the answers with the findings
REFUSAL = "refusal"  # in place of all parts: the code of the RowsInFilesError that the worker met

TASKS: Mapping[type, str] = {
    Tenant: "billing.tasks.refresh_efficiency",
    # Of its own, since workers of release 1.0.0 would take a cluster's for done: so it fails there, and comes again.
    Cluster: "billing.reports.tasks.refresh_cluster_efficiency",
}
Owner = Tenant | Cluster
"""Whose efficiency it is: a tenant's on all clusters, or everybody's on one."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Parts of one. Without `as_of` it waits for a worker."""

    requested_at: datetime | None
    as_of: datetime | None
    seconds: int
    refusal: str  # "" where a worker met none
    answers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figures:
    """The efficiency of [since, until), epoch seconds; its money is at the prices of now."""

    since: int
    until: int
    as_of: datetime  # the moment for which it is right
    is_pending: bool  # a worker is to compute newer figures
    is_kept: bool
    answers: Mapping[str, Any]  # as EfficiencySnapshot has them
    cheaper: Cheaper

    def sums(self, by: By, *, top_jobs: bool) -> Sums:
        """By one grouping, with its most expensive jobs or without."""
        sums = Sums(**self.answers[by.value])
        return sums if top_jobs else Sums(sums.rows, ())


@dataclass(frozen=True, slots=True)
class Waiting:
    """There are no figures yet. Not requested, they are once the page is opened again: too many were lately."""

    is_requested: bool


def find(
    owner: Owner,
    *,
    since: int,
    until: int,
    moment: datetime,
    parts: Sequence[str],
    in_files: bool,
    may_request: bool,
) -> tuple[Snapshot | None, bool]:
    """Parts of the snapshot of these days, if one is there, and whether a worker is to compute a newer one.

    One that is due is requested, unless it `may_request` nothing; at once where a worker read no files and no
    rows of these days are `in_files` any more. At most seven queries.
    """
    rows = _snapshots_of(owner).filter(since=since, until=_end(until, moment))
    row = rows.values_list(
        "requested_at", "as_of", "seconds", f"answers__{REFUSAL}", *(f"answers__{part}" for part in parts)
    ).first()
    snapshot = None
    if row is not None:
        requested_at, as_of, seconds, refusal, *answers = row
        snapshot = Snapshot(
            requested_at, as_of, seconds, refusal or "", dict(zip(parts, answers, strict=True))
        )
    if not may_request:
        return snapshot, False
    if snapshot is not None and snapshot.refusal and not in_files:
        with _acting(owner):
            rows.filter(answers__has_key=REFUSAL).delete()
        snapshot = None
    waits = (
        snapshot is not None and snapshot.requested_at is not None and moment - snapshot.requested_at < STUCK
    )
    return snapshot, waits or (_is_due(snapshot, moment) and _request(owner, since, until, moment))


def _snapshots_of(owner: Owner) -> QuerySet[EfficiencySnapshot]:
    return EfficiencySnapshot.objects.filter(**_key(owner))


def _key(owner: Owner) -> dict[str, Any]:
    return {"tenant": owner} if isinstance(owner, Tenant) else {"cluster": owner}


def _end(until: int, moment: datetime) -> int | None:
    """None for days that go on: the same snapshot, whichever day to come they are said to end."""
    return until if until <= moment.timestamp() else None


def _is_due(snapshot: Snapshot | None, moment: datetime) -> bool:
    if snapshot is None or snapshot.as_of is None:
        return True
    return moment - snapshot.as_of >= max(REST, TIMES * timedelta(seconds=snapshot.seconds))


def _request(owner: Owner, since: int, until: int, moment: datetime) -> bool:
    """Have a worker compute these days; again, and by two at once, it is asked once. Whether it is now."""
    with _acting(owner):
        rows = _snapshots_of(owner)
        spent = rows.filter(as_of__gt=moment - timedelta(hours=1)).aggregate(seconds=Sum("seconds"))
        if (
            rows.filter(requested_at__gt=moment - STUCK).count() >= WAITING
            or (spent["seconds"] or 0) >= HOURLY
        ):
            return False
        row, _made = rows.get_or_create(**_key(owner), since=since, until=_end(until, moment))
        is_idle = Q(requested_at=None) | Q(requested_at__lte=moment - STUCK)
        if rows.filter(is_idle, pk=row.pk).update(requested_at=moment):
            outbox.add(TASKS[type(owner)], snapshot_id=row.pk)
        computed = rows.filter(requested_at=None)
        computed.exclude(pk__in=computed.order_by("-as_of").values("pk")[: MOST_KEPT - 1]).delete()
    return True


def forget(tenant_id: int) -> None:
    """Delete those of the tenant, and those of clusters, which have everybody's users."""
    EfficiencySnapshot.objects.filter(Q(tenant=tenant_id) | Q(cluster__isnull=False)).delete()


def forget_old(*, moment: datetime) -> None:
    """Delete those that nobody has looked at for RETENTION."""
    EfficiencySnapshot.objects.filter(requested_at=None, as_of__lt=moment - RETENTION).delete()


def _acting(owner: Owner) -> AbstractContextManager[None]:
    """A tenant's page is in a transaction already, where it may write in this scope alone."""
    return acting_scope(owner) if isinstance(owner, Tenant) else transaction.atomic()
