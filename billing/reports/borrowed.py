"""GPU-seconds that queues of Kueue held on borrowed quota, and what those cost: estimated, never billed apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.db import connection

from billing.documents.csv import rows_to_csv
from billing.models import Price
from billing.queries.costs import tags
from billing.reports.reporting import HOUR, SCALED, ReportError
from billing.reports.shapes import ZERO, Standing
from billing.reports.table import digits
from clusters.borrowed_quota import Borrowed, of_cluster
from clusters.models import Cluster
from portal.core.tenants.models import Tenant

_RATED = """
WITH span AS (
    SELECT * FROM unnest(%(records)s::bigint[], %(begins)s::bigint[], %(ends)s::bigint[], %(gpus)s::int[],
                         %(queues)s::text[]) AS t (record_id, since, until, gpus, queue)
), rated AS (
    SELECT record_id, tenant_id, verdict, price_id, service_from, service_to, share_num, share_den
    FROM billing_ratedusage
    WHERE record_id = ANY (%(records)s) AND resource = 'gpu'
      AND service_month >= utc_month(%(since)s) AND service_month <= utc_month(%(until)s)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 HAVING sum(units) <> 0
)
SELECT s.queue, r.tenant_id, r.verdict, r.price_id,
       sum(s.gpus::numeric * r.share_num * (least(s.until, r.service_to) - greatest(s.since, r.service_from))),
       r.share_den
FROM span s JOIN rated r ON r.record_id = s.record_id AND r.service_from < s.until AND r.service_to > s.since
GROUP BY s.queue, r.tenant_id, r.verdict, r.price_id, r.share_den
"""


@dataclass(frozen=True, slots=True)
class Lent:
    """Of one queue, what one tenant's runs held on borrowed quota, of one standing and in one currency."""

    queue: str
    tenant: str  # "" where nobody owns the use
    standing: Standing
    currency: str  # "" unless charged
    seconds: Fraction  # GPU-seconds: a slice counts as its part
    cost: Fraction | None  # for the GPUs; None unless charged


@dataclass(frozen=True, slots=True)
class Quota:
    """Of one queue, in device-seconds: what its gauges tell that it held above its quota, and how much no run held."""

    queue: str
    above: int
    nobodys: int
    told: int  # seconds of the period for which the gauges tell anything


@dataclass(frozen=True, slots=True)
class BorrowedReport:
    """Everything in [since, until), epoch seconds."""

    since: int
    until: int
    queues: list[Quota]
    rows: list[Lent]
    notes: list[str]


def borrowed(cluster: Cluster, *, since: int, until: int, clock: Callable[[], int]) -> BorrowedReport:
    """What queues of the cluster borrowed in [since, until), and what it cost whom. Changes nothing.

    Raises ReportError, BorrowingError and ConnectorError. Few queries, and one time of the gauges.
    """
    if since >= until:
        raise ReportError("period-order")
    found = of_cluster(cluster, since=since, until=until, clock=clock)
    queues = []
    for name in sorted({part.queue for part in found.above}):
        parts = [part for part in found.above if part.queue == name]
        above = sum(part.gpus * (part.until - part.since) for part in parts)
        taken = sum(one.gpus * (one.until - one.since) for one in found.runs if one.run.queue == name)
        queues.append(Quota(name, above, above - taken, sum(part.until - part.since for part in parts)))
    rows, notes = _rows(found.runs, since, until)
    if any(queue.told < until - since for queue in queues):
        notes.append("For a part of the period the gauges told nothing: what was borrowed then is not known.")
    return BorrowedReport(since, until, queues, rows, notes)


def _rows(taken: Sequence[Borrowed], since: int, until: int) -> tuple[list[Lent], list[str]]:
    with connection.cursor() as cursor:
        cursor.execute(
            _RATED,
            {
                "records": [one.run.record for one in taken],
                "begins": [one.since for one in taken],
                "ends": [one.until for one in taken],
                "gpus": [one.gpus for one in taken],
                "queues": [one.run.queue for one in taken],
                "since": since,
                "until": until,
            },
        )
        found = cursor.fetchall()
    prices = tags(row[3] for row in found)
    sums: dict[tuple[str, int | None, Standing, str], list[Fraction]] = {}
    held: dict[str, Fraction] = {}
    for one in taken:
        held[one.run.queue] = held.get(one.run.queue, ZERO) + one.run.share * one.gpus * (
            one.until - one.since
        )
    for queue, tenant, verdict, price, units, den in found:
        seconds = Fraction(units) / den
        held[queue] -= seconds
        currency = prices[price].currency if price is not None else ""
        of = sums.setdefault((queue, tenant, Standing(verdict), currency), [ZERO, ZERO])
        of[0] += seconds
        of[1] += seconds * Fraction(prices[price].unit_price) / HOUR if price is not None else ZERO
    for queue, rest in held.items():
        if rest:
            sums[queue, None, Standing.UNASSIGNED, ""] = [rest, ZERO]
    slugs = dict(Tenant.objects.filter(pk__in={key[1] for key in sums if key[1]}).values_list("pk", "slug"))
    rows = [
        Lent(queue, slugs.get(tenant or 0, ""), standing, currency, seconds, cost if currency else None)
        for (queue, tenant, standing, currency), (seconds, cost) in sums.items()
    ]
    scaled = Price.objects.filter(pk__in=list(prices)).exclude(scale={}).exists()
    return sorted(rows, key=lambda row: (row.queue, row.tenant, row.standing, row.currency)), [
        SCALED
    ] * scaled


HEADER = ("queue", "tenant", "standing", "currency", "borrowed_gpu_hours", "cost", "estimated")


def as_csv(report: BorrowedReport) -> Iterator[bytes]:
    """A line for each row."""
    return rows_to_csv(
        HEADER,
        (
            [
                row.queue,
                row.tenant,
                row.standing.value,
                row.currency,
                Decimal(digits(row.seconds / HOUR)),
                Decimal(digits(row.cost)) if row.cost is not None else None,
                "yes",
            ]
            for row in report.rows
        ),
    )


def as_data(report: BorrowedReport) -> dict[str, Any]:
    """For programs: quantities and amounts are decimal texts."""
    return {
        "estimated": True,
        "queues": [
            {
                "queue": one.queue,
                "above_quota_gpu_hours": digits(Fraction(one.above, HOUR)),
                "nobodys_gpu_hours": digits(Fraction(one.nobodys, HOUR)),
                "told_percent": digits(Fraction(one.told * 100, report.until - report.since)),
            }
            for one in report.queues
        ],
        "rows": [
            {
                "queue": row.queue,
                "tenant": row.tenant,
                "standing": row.standing.value,
                "currency": row.currency or None,
                "borrowed_gpu_hours": digits(row.seconds / HOUR),
                "cost": digits(row.cost) if row.cost is not None else None,
            }
            for row in report.rows
        ],
        "notes": report.notes,
    }
