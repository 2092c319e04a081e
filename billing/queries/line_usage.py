"""The jobs behind the lines of an invoice: what each adds, to the unit, on pages and as CSV.

A line covers what was rated under its service period, project and price since the invoice that
covered them before, up to its own invoice's `rated_through`. Its jobs add up to it exactly. What another tenant
used, which the invoice's pays, has its jobs on that one's pages alone.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from io import StringIO
from typing import Any

from django.db import connection

from billing.documents.csv import FORMULA, cell
from billing.models import Invoice, InvoiceLine
from billing.rating import billed_usage
from billing.rules.meters import MAX_PRICE_DECIMALS
from billing.rules.money import Money, rounded_text
from billing.rules.price_shares import per_hour

PAGE = 25
BLOCK = 65_536  # bytes: each piece of an answer passes through all of the server


@dataclass(frozen=True, slots=True)
class JobOnLine:
    """What one job adds to a line; negative where it is taken back."""

    record_id: int
    job_id: str
    user: str
    service_from: datetime
    service_to: datetime
    units: int  # resource units × seconds
    share: Fraction
    left: bool  # it is another tenant's now, or nobody's, and has no page here

    @property
    def resource_seconds(self) -> Fraction:
        return self.units * self.share


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last job of a page. `rank` is the shortened size that the list is ordered by."""

    rank: Decimal
    record_id: int
    share: Fraction


def counts(invoice: Invoice, lines: Sequence[InvoiceLine]) -> dict[int, int]:
    """How many jobs stand behind each line, by its position. Two queries."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, _reach(invoice, lines))
        return dict(cursor.fetchall())


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the jobs behind a line, the largest first."""

    jobs: list[JobOnLine]
    count: int  # of all jobs of the line
    more: Cursor | None  # where the next page begins


def jobs(line: InvoiceLine, *, after: Cursor | None = None) -> Page:
    """A page of the line's jobs. Two queries."""
    values = _reach(line.invoice, [line]) | {
        "first": after is None,
        "rank": after.rank if after else 0,
        "record": after.record_id if after else 0,
        "num": after.share.numerator if after else 0,
        "den": after.share.denominator if after else 0,
        "limit": PAGE + 1,
    }
    with connection.cursor() as cursor:
        cursor.execute(_PAGE, values)
        rows = cursor.fetchall()
    page_jobs = [
        JobOnLine(record, job, user, _at(since), _at(until), units, Fraction(num, den), left)
        for record, job, user, since, until, units, num, den, left, _, _ in rows[:PAGE]
    ]
    last = (
        Cursor(rows[PAGE - 1][-1], page_jobs[-1].record_id, page_jobs[-1].share) if len(rows) > PAGE else None
    )
    return Page(page_jobs, rows[0][-2] if rows else 0, last)


def as_csv(invoice: Invoice, lines: Sequence[InvoiceLine]) -> Iterator[bytes]:
    """One row per job and line, header first, as the database writes them, in pieces of BLOCK bytes and a row.

    `units` × `share` are the job's exact resource-seconds; those of a line add up to it. `hours` and
    `amount` are the same, shortened to be read. Behind all jobs stand the lines without any, with their amounts.
    """
    amounts = [line for line in lines if not _has_jobs(line)]
    lines = [line for line in lines if _has_jobs(line)]
    values = _reach(invoice, lines) | {
        "number": invoice.number,
        "currency": invoice.currency,
        "formula": FORMULA,
        "descriptions": [line.description for line in lines],
        "names": [line.project for line in lines],
        "meters": [line.unit for line in lines],
        "unit_prices": [line.unit_price for line in lines],
        "hour_prices": [hour_price(line) for line in lines],
    }
    statement = connection.ops.compose_sql(_CSV, values)  # type: ignore[attr-defined]  # of PostgreSQL
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        block = bytearray()
        for row in copy:
            block += row
            if len(block) >= BLOCK:
                yield bytes(block)
                block.clear()
        if block:
            yield bytes(block)
    if amounts:
        yield _without_jobs(invoice, amounts)


def _without_jobs(invoice: Invoice, lines: Sequence[InvoiceLine]) -> bytes:
    """A row for each line whose jobs are not told: a fee, a discount, what was added by hand, what another used."""
    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for line in lines:
        service = line.service_period
        used: tuple[object, ...] = ("", "", "")
        if line.seconds_num:
            exact = rounded_text(Fraction(int(line.seconds_num), line.seconds_den * 3600), 9)
            hours = f"{Decimal(exact):.9f}"
            used = (hours, line.unit, "" if line.unit_price is None else f"{line.unit_price.normalize():f}")
        writer.writerow(
            (
                *(cell(invoice.number), line.position, cell(line.description), cell(line.project)),
                *("",) * 8,
                *(f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (service.start, service.end)),
                *("", "", *used),
                *(invoice.currency, Money.from_minor(line.amount, invoice.currency).text, line.kind),
            )
        )
    return text.getvalue().encode("utf-8", "replace")


def hour_price(line: InvoiceLine) -> Decimal:
    """What an hour of a job behind the line costs; of a price over several projects their average, to 12 decimals."""
    if not line.terms:
        return line.unit_price or Decimal(0)
    return Decimal(rounded_text(per_hour(line.terms, line.invoice.currency).amount, MAX_PRICE_DECIMALS))


def _reach(invoice: Invoice, lines: Sequence[InvoiceLine]) -> dict[str, Any]:
    """Which rated rows each line covers; one that is an amount alone covers none, nor does what another used."""
    lines = [line for line in lines if _has_jobs(line)]
    issued = billed_usage.before(invoice)
    spans = [(line.service_period.start.astimezone(UTC), line.service_period.end) for line in lines]
    afters = [billed_usage.through(issued, end) for _, end in spans]
    return {
        "tenant": invoice.tenant_id,
        "through": invoice.rated_through,
        "since": min((start for start, _ in spans), default=invoice.period_start).date().replace(day=1),
        "until": max((end for _, end in spans), default=invoice.period_end),
        "positions": [line.position for line in lines],
        "periods": [line.service_period_id for line in lines],
        "projects": [line.project_id for line in lines],
        "prices": [line.price_id for line in lines],
        "after": afters,
        "moments": sorted({*filter(None, afters), invoice.rated_through}),
    }


def _has_jobs(line: InvoiceLine) -> bool:
    return bool(line.seconds_num) and line.used_by() is None


def _at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


_USAGE = """
WITH line AS (
    SELECT * FROM unnest(%(positions)s::int[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
                         %(after)s::bigint[]) AS l (position, period_id, project_id, price_id, after)
), held AS (
    SELECT l.position, r.record_id, r.share_num, r.share_den, min(r.service_from) AS service_from,
           max(r.service_to) AS service_to, sum(r.units)::bigint AS units,
           CASE WHEN sum(r.units) < 0 THEN l.after ELSE %(through)s END AS moment
    FROM line l JOIN billing_ratedusage r
      ON r.period_id = l.period_id AND r.project_id = l.project_id AND r.price_id = l.price_id AND r.id > l.after
    WHERE r.tenant_id = %(tenant)s AND r.payer_id IS NULL AND r.id <= %(through)s
      AND r.service_month >= %(since)s AND r.service_month < %(until)s::timestamptz AT TIME ZONE 'UTC'
    GROUP BY l.position, l.after, r.record_id, r.share_num, r.share_den
    HAVING sum(r.units) <> 0
)
"""

_COUNTS = f"{_USAGE} SELECT position, count(DISTINCT record_id) FROM held GROUP BY position"  # noqa: S608 - built from constants

# What is taken back is described as it was billed, what is charged as this document covers it.
_JOB = """LEFT JOIN jobs_as_billed(%(tenant)s, %(moments)s::bigint[]) b
  ON b.record_id = h.record_id AND b.moment = h.moment
LEFT JOIN billing_ratedjob j ON j.tenant_id = %(tenant)s AND j.record_id = h.record_id"""


def _shown(name: str) -> str:
    return f'CASE WHEN b.record_id IS NULL THEN j."{name}" ELSE b."{name}" END'


_PAGE = f"""{_USAGE}
SELECT * FROM (
    SELECT h.record_id, coalesce({_shown("job_id")}, ''), coalesce({_shown("user")}, ''), h.service_from, h.service_to,
           h.units, h.share_num, h.share_den, j.record_id IS NULL, (SELECT count(DISTINCT record_id) FROM held),
           (h.units::numeric * h.share_num / h.share_den)::numeric(30, 6) AS rank
    FROM held h {_JOB}
) job
WHERE %(first)s OR (-rank, record_id, share_num, share_den) > (-%(rank)s, %(record)s, %(num)s, %(den)s)
ORDER BY -rank, record_id, share_num, share_den
LIMIT %(limit)s
"""  # noqa: S608 - built from constants


def _text(column: str) -> str:
    """The column as one cell of a spreadsheet: `billing.documents.csv.cell` in SQL."""
    return f"CASE WHEN ({column}) ~ %(formula)s THEN '''' || ({column}) ELSE coalesce({column}, '') END"


_CSV = f"""COPY ({_USAGE}
SELECT {_text("%(number)s")} AS invoice, h.position AS line, {_text("t.description")} AS description,
       {_text("t.project")} AS project, {_text(_shown("job_id"))} AS job,
       {_text(_shown("name"))} AS name, {_text(_shown("user"))} AS "user", {_text(_shown("cluster"))} AS cluster,
       {_text(_shown("account"))} AS account, {_text(_shown("queue"))} AS queue,
       {_text(_shown("gpu_model"))} AS gpu_model, {_text(_shown("state"))} AS state,
       to_char(to_timestamp(h.service_from) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS service_from,
       to_char(to_timestamp(h.service_to) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS service_to,
       h.units,
       CASE WHEN h.share_den = 1 THEN h.share_num::text ELSE h.share_num || '/' || h.share_den END AS share,
       (h.units::numeric * h.share_num / (h.share_den * 3600::numeric))::numeric(40, 9) AS hours, t.unit,
       trim_scale(t.unit_price) AS unit_price, %(currency)s AS currency,
       (h.units::numeric * h.share_num * t.hour_price / (h.share_den * 3600::numeric))::numeric(50, 9) AS amount,
       'usage' AS kind
FROM held h
JOIN unnest(%(positions)s::int[], %(descriptions)s::text[], %(names)s::text[], %(meters)s::text[],
            %(unit_prices)s::numeric[], %(hour_prices)s::numeric[])
  AS t (position, description, project, unit, unit_price, hour_price)
  ON t.position = h.position
{_JOB}
ORDER BY h.position, h.service_from, h.record_id
) TO STDOUT WITH (FORMAT csv, HEADER)
"""  # noqa: S608 - built from constants
