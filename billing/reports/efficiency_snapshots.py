"""Keeping what pages about efficiency show, where the jobs are many: a page requests it, a worker computes it.

A run's hours say together which finding each is in, and a job counts once, however many days it ran. So the figures of
some days are no sum of figures of single days. Whoever opens a page has a worker renew its snapshot once it has rested:
so it follows whatever came late, was corrected or moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import Q, QuerySet

from billing.models import EfficiencySnapshot
from billing.reports import snapshots
from billing.reports.reporting import Sums
from billing.reports.shapes import By
from billing.reports.waste import Cheaper
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope

LARGE: Final = 1_000
"""Jobs up to which a page computes its figures itself: some 0.1 ms for each."""
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
    if snapshot is not None and snapshots.is_waiting(snapshot.requested_at, moment):
        return snapshot, True
    if snapshot is not None and not snapshots.is_due(snapshot.as_of, snapshot.seconds, moment):
        return snapshot, False
    key = {**_key(owner), "since": since, "until": _end(until, moment)}
    with _acting(owner):
        return snapshot, snapshots.request(_snapshots_of(owner), key, task=TASKS[type(owner)], moment=moment)


def _snapshots_of(owner: Owner) -> QuerySet[EfficiencySnapshot]:
    return EfficiencySnapshot.objects.filter(**_key(owner))


def _key(owner: Owner) -> dict[str, Any]:
    return {"tenant": owner} if isinstance(owner, Tenant) else {"cluster": owner}


def _end(until: int, moment: datetime) -> int | None:
    """None for days that go on: the same snapshot, whichever day to come they are said to end."""
    return until if until <= moment.timestamp() else None


def forget(tenant_id: int) -> None:
    """Delete those of the tenant, and those of clusters, which have everybody's users."""
    EfficiencySnapshot.objects.filter(Q(tenant=tenant_id) | Q(cluster__isnull=False)).delete()


def forget_old(*, moment: datetime) -> None:
    snapshots.forget_old(EfficiencySnapshot.objects.all(), moment=moment)


def _acting(owner: Owner) -> AbstractContextManager[None]:
    """A tenant's page is in a transaction already, where it may write in this scope alone."""
    return acting_scope(owner) if isinstance(owner, Tenant) else transaction.atomic()
