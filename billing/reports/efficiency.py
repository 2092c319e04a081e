"""What the page *Efficiency* shows: computed from the runs at once where they are few, else kept by a worker.

A tenant with many jobs is shown a snapshot of the days that it chose, with its moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.db.models import Sum

from billing.catalog import plans
from billing.models import PeriodJobs
from billing.reports import efficiency_snapshots, reporting, waste
from billing.reports.efficiency_snapshots import JOBS, PODS, TOP_JOBS, WASTE, Figures, Waiting
from billing.reports.shapes import By, Report
from billing.reports.waste import Cheaper, Kind, Waste, WasteQuery
from clusters import absent_records
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, tenant_scope

BYS = (By.PROJECT, By.NAMESPACE, By.USER, By.MODEL, By.POD)
KINDS = tuple(kind for kind in Kind if kind is not Kind.WAITED)


class Efficiency(Figures):
    """What a tenant held. Used in its scope."""

    __slots__ = ()

    def report(self, by: By, *, top_jobs: bool = False) -> Report:
        sums = self.sums(by, top_jobs=top_jobs)
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
) -> Efficiency | Waiting:
    """What the tenant held in [since, until) by one grouping, and its waste with the jobs of a kind. In its scope.

    Waiting while a worker computes it for the first time. Asked for again, the same worker does it once. Without
    `may_request` nothing is written: what is not kept is computed at once. At most eleven queries.
    """
    months = absent_records.list_between(since, until)
    with acting_scope(tenant):
        cheaper = waste.cheaper_models(tenant)
    parts = [WASTE, *([by.value] if by else [])]
    if _is_large(tenant, since, until):
        snapshot, is_pending = efficiency_snapshots.find(
            tenant,
            since=since,
            until=until,
            moment=moment,
            parts=parts,
            in_files=bool(months),
            may_request=may_request,
        )
        if snapshot is not None and snapshot.as_of is not None:
            return Efficiency(since, until, snapshot.as_of, is_pending, True, snapshot.answers, cheaper)
        if may_request:
            if snapshot is None:
                absent_records.refuse_unreadable(months)
            elif snapshot.refusal:
                absent_records.refuse(months, snapshot.refusal)
            # Else the files were looked at then, and a page that waits asks every two seconds.
            return Waiting(is_requested=is_pending)
    absent_records.show(months, with_hours=True)
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


def compute(tenant: Tenant, *, since: int, until: int, moment: datetime) -> dict[str, Any]:
    """All that pages may show of [since, until), for a snapshot."""
    with acting_scope(tenant):
        cheaper = waste.cheaper_models(tenant)
    with tenant_scope(tenant):
        absent_records.show(absent_records.list_between(since, until), most=None, with_hours=True)
        return _compute(
            tenant,
            since=since,
            until=until,
            moment=moment,
            cheaper=cheaper,
            bys=BYS,
            top_jobs=TOP_JOBS,
            kinds=KINDS,
        )


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
    """What pages show, by the name of each grouping and `waste`. At most four queries in the tenant's scope."""
    by_use = plans.by_use()
    sums = (
        reporting.sums_of_tenant(
            tenant, since=since, until=until, bys=bys, limit=PODS, top_jobs=top_jobs, by_use=by_use
        )
        if bys
        else {}
    )
    end = waste.end_of_use(until, moment, since)
    rows = waste.rows_of_tenant(tenant, WasteQuery(since, end, cheaper, kinds, JOBS, by_use))
    return {by.value: asdict(found) for by, found in sums.items()} | {WASTE: rows}


def _is_large(tenant: Tenant, since: int, until: int) -> bool:
    """Whether more than `LARGE` jobs started in the billing periods that these days touch."""
    periods = PeriodJobs.objects.filter(
        tenant=tenant,
        period__start__lt=datetime.fromtimestamp(until, UTC),
        period__end__gt=datetime.fromtimestamp(since, UTC),
    )
    return (periods.aggregate(jobs=Sum("started"))["jobs"] or 0) > efficiency_snapshots.LARGE
