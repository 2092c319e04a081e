"""What the page *Efficiency* shows: computed from the runs at once where they are few, else kept by a worker.

A run's hours say together which finding each is in, and a job counts once, however many days it ran. So the figures of
some days are no sum of figures of single days. A tenant with many jobs is shown a snapshot of the days that it chose,
with its moment. Whoever opens it has a worker renew it once it has rested: so it follows whatever came late, was
corrected or moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Final

from django.db import transaction
from django.db.models import Q, Sum

from billing.models import EfficiencySnapshot, PeriodJobs
from billing.reports import reporting, waste
from billing.reports.reporting import Sums
from billing.reports.shapes import By, Report
from billing.reports.waste import Cheaper, Kind, Waste
from clusters import absent_records
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, tenant_scope

LARGE: Final = 1_000
"""Jobs up to which a page computes its figures itself: some 0.1 ms for each."""
REST: Final = timedelta(minutes=5)
"""A snapshot is not renewed before."""
TIMES: Final = 100
"""Nor before it has rested so many times as long as it took, so renewing takes a hundredth of a processor at most."""
RETENTION: Final = timedelta(days=35)
"""After that a snapshot that nobody looked at is deleted."""
WAITING: Final = 5
"""Snapshots of a tenant that wait for a worker at once; further ones wait for the page to be asked for again."""
STUCK: Final = timedelta(hours=1)
"""After that a snapshot that waits is requested again, and takes no place from others: its task has failed."""
HOURLY: Final = 600
"""Seconds in an hour after which no more of a tenant's days are computed: documents wait for the same worker."""
MOST_KEPT: Final = 100
"""Snapshots of a tenant; the oldest are deleted."""
DAY = 86_400
BYS = (By.PROJECT, By.NAMESPACE, By.USER, By.MODEL, By.POD)
PODS = 25
TOP_JOBS = 5
JOBS = 50  # that a finding opens to
WASTE = "waste"
KINDS = tuple(kind for kind in Kind if kind is not Kind.WAITED)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What a tenant held in [since, until), epoch seconds; its money is at the prices of now. Used in its scope."""

    since: int
    until: int
    as_of: datetime  # the moment for which it is right
    is_pending: bool  # a worker is to compute newer figures
    is_kept: bool
    answers: Mapping[str, Any]  # as EfficiencySnapshot has them
    cheaper: Cheaper

    def report(self, by: By, *, top_jobs: bool = False) -> Report:
        sums = Sums(**self.answers[by.value])
        sums = sums if top_jobs else Sums(sums.rows, ())
        return reporting.report_of_sums(sums, by=by, since=self.since, until=self.until)

    def waste(self, kind: Kind | None = None) -> Waste:
        """Of the days as far as they were over; with the most expensive jobs of a kind."""
        until = waste.end_of_use(self.until, self.as_of, self.since)
        rows, cheaper = self.answers[WASTE], self.cheaper
        return waste.waste_of_rows(rows, since=self.since, until=until, cheaper=cheaper, kind=kind)


def load(
    tenant: Tenant,
    *,
    since: int,
    until: int,
    moment: datetime,
    by: By | None = None,
    top_jobs: bool = False,
    kind: Kind | None = None,
    may_request: bool = True,
) -> Efficiency | None:
    """What the tenant held in [since, until) by one grouping, and its waste with the jobs of a kind. In its scope.

    None while a worker computes it for the first time. Asked for again, the same worker does it once. Without
    `may_request` nothing is written: what is not kept is computed at once. At most eight queries.
    """
    absent_records.refuse_between(since, until)
    with acting_scope(tenant):
        cheaper = waste.cheaper_models(tenant)
    parts = [WASTE, *([by.value] if by else [])]
    if _is_large(tenant, since, until):
        row = _find(tenant, since, until, moment, parts)
        is_pending = may_request and (
            (row is not None and row.requested_at is not None and moment - row.requested_at < STUCK)
            or (_is_due(row, moment) and _request(tenant, since, until, moment))
        )
        if row is not None and row.as_of is not None:
            return Efficiency(since, until, row.as_of, is_pending, True, row.answers, cheaper)
        if may_request:
            return None
    answers = _compute(
        tenant,
        since=since,
        until=until,
        moment=moment,
        cheaper=cheaper,
        bys=[by] if by else [],
        top_jobs=TOP_JOBS if top_jobs else 0,
        kinds=[kind] if kind else [],
    )
    return Efficiency(since, until, moment, False, False, answers, cheaper)


@transaction.atomic
def refresh(snapshot_id: int, *, clock: Callable[[], datetime]) -> None:
    """Compute a snapshot that was requested, in the transaction of its request; nothing where none is.

    Ended anywhere, it is done again as a whole. Deletes those of the tenant that are old, or too many.
    """
    requested = EfficiencySnapshot.objects.select_for_update(of=("self",)).select_related("tenant")
    snapshot = requested.filter(pk=snapshot_id, requested_at__isnull=False).first()
    if snapshot is None:
        return
    tenant, moment = snapshot.tenant, clock()
    with acting_scope(tenant):
        cheaper = waste.cheaper_models(tenant)
    until = snapshot.until or max(int(moment.timestamp()), snapshot.since) + DAY
    with tenant_scope(tenant):
        absent_records.refuse_between(snapshot.since, until)
        snapshot.answers = _compute(
            tenant,
            since=snapshot.since,
            until=until,
            moment=moment,
            cheaper=cheaper,
            bys=BYS,
            top_jobs=TOP_JOBS,
            kinds=KINDS,
        )
    snapshot.as_of, snapshot.requested_at = moment, None
    snapshot.seconds = ceil((clock() - moment).total_seconds())
    snapshot.save()
    kept = EfficiencySnapshot.objects.filter(tenant=tenant, requested_at=None)
    newest = kept.order_by("-as_of").values("pk")[:MOST_KEPT]
    kept.exclude(pk__in=newest, as_of__gte=moment - RETENTION).delete()


def _compute(
    tenant: Tenant,
    *,
    since: int,
    until: int,
    moment: datetime,
    cheaper: Cheaper,
    bys: Sequence[By],
    top_jobs: int,
    kinds: Sequence[Kind],
) -> dict[str, Any]:
    """What pages show, by the name of each grouping and `waste`. At most five queries in the tenant's scope."""
    sums = (
        reporting.sums_of_tenant(tenant, since=since, until=until, bys=bys, limit=PODS, top_jobs=top_jobs)
        if bys
        else {}
    )
    end = waste.end_of_use(until, moment, since)
    rows = waste.rows_of_tenant(tenant, since=since, until=end, cheaper=cheaper, kinds=kinds, jobs=JOBS)
    return {by.value: asdict(found) for by, found in sums.items()} | {WASTE: rows}


@dataclass(frozen=True, slots=True)
class _Kept:
    requested_at: datetime | None
    as_of: datetime | None
    seconds: int
    answers: Mapping[str, Any]


def _find(tenant: Tenant, since: int, until: int, moment: datetime, parts: Sequence[str]) -> _Kept | None:
    """Parts of the snapshot of these days, if one is kept or requested."""
    rows = EfficiencySnapshot.objects.filter(tenant=tenant, since=since, until=_end(until, moment))
    row = rows.values_list(
        "requested_at", "as_of", "seconds", *(f"answers__{part}" for part in parts)
    ).first()
    if row is None:
        return None
    requested_at, as_of, seconds, *answers = row
    return _Kept(requested_at, as_of, seconds, dict(zip(parts, answers, strict=True)))


def _end(until: int, moment: datetime) -> int | None:
    """None for days that go on: the same snapshot, whichever day to come they are said to end."""
    return until if until <= moment.timestamp() else None


def _is_large(tenant: Tenant, since: int, until: int) -> bool:
    """Whether more than LARGE jobs started in the billing periods that these days touch."""
    periods = PeriodJobs.objects.filter(
        tenant=tenant,
        period__start__lt=datetime.fromtimestamp(until, UTC),
        period__end__gt=datetime.fromtimestamp(since, UTC),
    )
    return (periods.aggregate(jobs=Sum("started"))["jobs"] or 0) > LARGE


def _is_due(row: _Kept | None, moment: datetime) -> bool:
    if row is None or row.as_of is None:
        return True
    return moment - row.as_of >= max(REST, TIMES * timedelta(seconds=row.seconds))


def _request(tenant: Tenant, since: int, until: int, moment: datetime) -> bool:
    """Have a worker compute these days; again, and by two at once, it is asked once. Whether it is now."""
    with acting_scope(tenant):
        rows = EfficiencySnapshot.objects.filter(tenant=tenant)
        spent = rows.filter(as_of__gt=moment - timedelta(hours=1)).aggregate(seconds=Sum("seconds"))
        if (
            rows.filter(requested_at__gt=moment - STUCK).count() >= WAITING
            or (spent["seconds"] or 0) >= HOURLY
        ):
            return False
        row, _made = rows.get_or_create(tenant=tenant, since=since, until=_end(until, moment))
        is_idle = Q(requested_at=None) | Q(requested_at__lte=moment - STUCK)
        if rows.filter(is_idle, pk=row.pk).update(requested_at=moment):
            outbox.add("billing.tasks.refresh_efficiency", snapshot_id=row.pk)
    return True
