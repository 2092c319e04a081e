"""The runs of *Why did it change?* where they are many: a page requests their number, a worker counts them.

A page without them shows volume as one part, and is right; counting 57,000 runs for each view would take three times as
long as all the rest of it. Whoever opens a page has a worker count anew once its snapshot has rested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from hashlib import sha256
from math import ceil
from typing import Any, Final

from django.db import transaction
from django.db.models import Q, Sum

from billing.models import PeriodJobs, RunCountSnapshot
from billing.queries import run_counts
from billing.queries.cost_explorer import CostQuery, Days
from billing.queries.run_counts import MOST_ON_REQUEST, MOST_RUNS, Counts
from billing.queries.usage_series import Grouping
from billing.reports import snapshots
from billing.rules.period import midnight
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, tenant_scope

LARGE: Final = 2_000
"""Runs up to which a page counts them itself."""
TASK: Final = "billing.reports.tasks.count_runs"


@dataclass(frozen=True, slots=True)
class LoadedCounts:
    """`counts` are None where runs are not counted: a worker is about to, they are too many, in files, or counted next.

    `at_once`: so many are to be counted with the rest of the page. `uncounted`: months, as text, whose runs cannot be
    read.
    """

    counts: Counts | None = None
    at_once: int = 0
    uncounted: str = ""
    as_of: datetime | None = None  # the moment for which a worker counted them
    is_pending: bool = False  # a worker is to count them, or to count anew
    is_deferred: bool = False  # no worker is: too much was requested lately

    @property
    def is_waiting(self) -> bool:
        return self.is_pending or self.is_deferred

    @property
    def most(self) -> int:
        """More are not counted."""
        return self.at_once or MOST_ON_REQUEST


def load(tenant: Tenant, query: CostQuery, *, moment: datetime, may_request: bool) -> LoadedCounts:
    """How many runs each group had in both ranges. In the tenant's scope.

    Without `may_request` nothing is written: runs that no worker has counted are counted at once, up to MOST_RUNS.
    """
    if not _may_be_large(tenant, query):
        return _at_once(tenant, query)
    described = _describe(tenant, query)
    digest = sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    rows = RunCountSnapshot.objects.filter(tenant=tenant)
    snapshot = rows.filter(digest=digest).first()
    if not may_request:
        return (
            _at_once(tenant, query)
            if snapshot is None or snapshot.as_of is None
            else _loaded(snapshot, query)
        )
    if snapshot is None and (few := _few(tenant, query)) is not None:
        return LoadedCounts(few)
    is_pending = snapshot is not None and snapshots.is_waiting(snapshot.requested_at, moment)
    is_due = snapshot is None or snapshots.is_due(snapshot.as_of, snapshot.seconds, moment)
    if is_due and not is_pending:
        with acting_scope(tenant):
            key = {"tenant": tenant, "digest": digest}
            is_pending = snapshots.request(rows, key, task=TASK, moment=moment, query=described)
    if snapshot is None or snapshot.as_of is None:
        return LoadedCounts(is_pending=is_pending, is_deferred=not is_pending)
    return replace(_loaded(snapshot, query), is_pending=is_pending)


def _at_once(tenant: Tenant, query: CostQuery) -> LoadedCounts:
    uncounted = run_counts.show_runs(tenant, query)
    return LoadedCounts(at_once=0 if uncounted else MOST_RUNS, uncounted=uncounted)


def _loaded(snapshot: RunCountSnapshot, query: CostQuery) -> LoadedCounts:
    counts = None if snapshot.rows is None else run_counts.counts_of(snapshot.rows, query.by)
    return LoadedCounts(counts, uncounted=snapshot.uncounted, as_of=snapshot.as_of)


def _few(tenant: Tenant, query: CostQuery) -> Counts | None:
    """Of few days in large months; not of dropped ones, all of whose files would be read."""
    if run_counts.list_absent(tenant, query):
        return None
    with acting_scope(tenant):
        return run_counts.load_run_counts(tenant, query, most=LARGE)


def _may_be_large(tenant: Tenant, query: CostQuery) -> bool:
    """Whether more than LARGE jobs started in the billing periods that the days touch. One query."""
    touched = Q()
    for days in (query.later, query.earlier):
        since, until = (midnight(day, zone=tenant.zone) for day in (days.first, days.end))
        touched |= Q(period__start__lt=until, period__end__gt=since)
    jobs = PeriodJobs.objects.filter(touched, tenant=tenant).aggregate(jobs=Sum("started"))
    return (jobs["jobs"] or 0) > LARGE


def _describe(tenant: Tenant, query: CostQuery) -> dict[str, Any]:
    return {
        "zone": tenant.timezone,
        "later": [query.later.first.isoformat(), query.later.end.isoformat()],
        "earlier": [query.earlier.first.isoformat(), query.earlier.end.isoformat()],
        "by": [str(by) for by in query.by],
        "filters": {str(name): value for name, value in (query.filters or {}).items()},
    }


def _query(described: Mapping[str, Any]) -> CostQuery:
    later, earlier = (Days(*map(date.fromisoformat, described[name])) for name in ("later", "earlier"))
    filters = {Grouping(name): value for name, value in described["filters"].items()}
    return CostQuery(later, earlier, tuple(map(Grouping, described["by"])), filters)


@transaction.atomic
def count(snapshot_id: int, *, clock: Callable[[], datetime]) -> None:
    """Count the runs of a snapshot that was requested, in the transaction of its request; nothing where none is.

    Ended anywhere, it is done again as a whole.
    """
    requested = RunCountSnapshot.objects.select_for_update(of=("self",)).select_related("tenant")
    snapshot = requested.filter(pk=snapshot_id, requested_at__isnull=False).first()
    if snapshot is None:
        return
    moment, query = clock(), _query(snapshot.query)
    with tenant_scope(snapshot.tenant):
        snapshot.uncounted = run_counts.show_runs(snapshot.tenant, query, most=None)
        with acting_scope(snapshot.tenant):
            rows = (
                []
                if snapshot.uncounted
                else run_counts.load_rows(snapshot.tenant, query, most=MOST_ON_REQUEST)
            )
    snapshot.rows = None if snapshot.uncounted else rows
    snapshot.as_of, snapshot.requested_at = moment, None
    snapshot.seconds = ceil((clock() - moment).total_seconds())
    snapshot.save()


def forget(tenant_id: int) -> None:
    RunCountSnapshot.objects.filter(tenant=tenant_id).delete()


def forget_old(*, moment: datetime) -> None:
    snapshots.forget_old(RunCountSnapshot.objects.all(), moment=moment)
