"""What stories of reports ask for: how busy a job was in an hour, and a report's rows as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from billing.reports.reporting import of_cluster
from billing.reports.shapes import By, Report, Split, Standing
from clusters.models import Cluster, UsageRecord, UtilisationHour
from portal.core.tenants.models import Tenant
from tests.builders import at

METRIC = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
HOUR = 3600


def worked(
    job_id: str, hour: str, busy: str, *, covered: int = HOUR, source: str = "device", metric: str = METRIC
) -> None:
    """Telemetry covered that many device-seconds of the job in the hour, and its devices worked `busy` of them."""
    UtilisationHour.objects.create(
        record=UsageRecord.objects.get(job_id=job_id),
        hour=int(at(hour).timestamp()),
        busy=busy,
        covered=covered,
        source=source,
        metric=metric,
    )


def report(
    cluster: Cluster,
    since: str = "2026-03-01",
    until: str = "2026-04-01",
    *,
    by: By = By.NAMESPACE,
    tenant: Tenant | None = None,
    limit: int = 1_000,
    top_jobs: int = 0,
) -> Report:
    return of_cluster(
        cluster,
        since=int(at(since).timestamp()),
        until=int(at(until).timestamp()),
        by=by,
        tenant=tenant,
        limit=limit,
        top_jobs=top_jobs,
    )


def report_rows(usage_report: Report) -> list[tuple[str, str, str, str]]:
    """Each row as (its names, its standing, its GPU-hours, its money): allocated = effective + waste + unknown."""
    return [
        (
            " / ".join(text or "–" for text in row.labels.values()) or "the others",
            row.standing.value,
            shares(row.seconds, Fraction(1, HOUR)),
            f"{shares(row.money)} {row.currency}" if row.money else "",
        )
        for row in usage_report.rows
    ]


def shares(split: Split, factor: Fraction = Fraction(1)) -> str:
    parts = [split.allocated, split.effective, split.waste, split.unknown]
    return "{} = {} + {} + {}".format(*(written(part * factor) for part in parts))


def written(value: Fraction) -> str:
    """`1.5`, or `12/7` where it has no end."""
    return f"{value.numerator / value.denominator:g}" if 10**9 % value.denominator == 0 else str(value)


def hours(usage_report: Report, standings: Iterable[Standing] = Standing) -> str:
    """GPU-hours allocated with one of the standings."""
    return written(
        sum((usage_report.of(row_status).allocated for row_status in standings), Fraction(0)) / HOUR
    )
