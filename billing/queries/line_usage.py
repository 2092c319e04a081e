"""The jobs behind the lines of an invoice: what each adds, to the unit, on pages and as CSV.

A line covers what was rated under its service period, project and price since the invoice that
covered them before, up to its own invoice's `rated_through`. Its jobs add up to it exactly. What another tenant
used, which the invoice's pays, has its jobs on that one's pages alone.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from io import StringIO
from typing import Any

from django.db import connection
from django.db.models import Sum

from billing.documents.csv import FORMULA, cell
from billing.models import Evidence, Invoice, InvoiceLine, LineJobs
from billing.rating import billed_usage
from billing.rules.meters import MAX_PRICE_DECIMALS
from billing.rules.money import Money, rounded_text
from billing.rules.price_shares import per_hour
from clusters import absent_records
from portal.sql_files import Statements

sql = Statements(__file__, "line_usage.sql")

PAGE = 25
KEPT = 4 * PAGE  # of each line, the largest
LEFT, JOBS, RANK, IS_ALL = 8, 9, 10, 11  # columns of a page's rows
BLOCK = 65_536  # bytes: each piece of an answer passes through all of the server
OF_EACH_LINE = ("positions", "periods", "projects", "prices", "after")  # of what `_reach` says
MANY_JOBS = 5_000  # behind the lines of an invoice, above which its CSV begins with the first line alone


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
    left: bool  # it is a sum, or another tenant's now, or nobody's, and has no page here

    @property
    def resource_seconds(self) -> Fraction:
        return self.units * self.share


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last job of a page. `rank` is the shortened size that the list is ordered by."""

    rank: Decimal
    record_id: int
    share: Fraction


def keep(invoice: Invoice) -> None:
    """Keep how many jobs stand behind each line of an issued document, and the largest. Kept already, it stays.

    Months of it whose rows stand in files alone are loaded back, as where a price of them was corrected: its evidence
    is made of them. Not those of which it charges late records alone, which are in the tables. Raises MonthFilesError
    where one cannot be.
    """
    lines = [line for line in invoice.lines.select_related("service_period") if _has_jobs(line)]
    counted = LineJobs.objects.filter(tenant=invoice.tenant_id, line__in=lines)
    line_ids = set(counted.values_list("line", flat=True))
    missing = [line for line in lines if line.pk not in line_ids]
    if missing or not Evidence.objects.filter(invoice=invoice).exists():
        absent_records.load_months(_absent(_reach(invoice, lines)))
    with connection.cursor() as cursor:
        cursor.execute(sql.KEEP, _reach(invoice, missing) | {"invoice": invoice.pk, "kept": KEPT})


def counts(invoice: Invoice, lines: Sequence[InvoiceLine], *, stored: Mapping[int, int]) -> dict[int, int]:
    """How many jobs stand behind each line, by its position; `stored` has those that are kept, by the line's id.

    Without a query, or with three before they are kept.
    """
    counted = {line.position: stored[line.pk] for line in lines if stored.get(line.pk)}
    missing = [line for line in lines if line.pk not in stored and _has_jobs(line)]
    if missing:
        reach = _reach(invoice, missing)
        absent_records.show(_absent(reach))
        with connection.cursor() as cursor:
            cursor.execute(sql.COUNTS, reach)
            counted |= dict(cursor.fetchall())
    return counted


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the jobs behind a line, the largest first."""

    jobs: list[JobOnLine]
    count: int  # of all jobs of the line
    more: Cursor | None  # where the next page begins


def jobs(line: InvoiceLine, *, after: Cursor | None = None) -> Page:
    """A page of the line's jobs. Two queries, and one more where the page is not among those kept."""
    values = _reach(line.invoice, [line]) | {
        "first": after is None,
        "rank": after.rank if after else 0,
        "record": after.record_id if after else 0,
        "num": after.share.numerator if after else 0,
        "den": after.share.denominator if after else 0,
        "limit": PAGE + 1,
        "line": line.pk,
    }
    with connection.cursor() as cursor:
        rows = _largest_rows(cursor, values)
        if len(rows) <= PAGE and not (rows and rows[0][IS_ALL]):
            absent_records.show(_absent(values))
            cursor.execute(sql.PAGE, values)
            rows = cursor.fetchall()
    page_jobs = [
        JobOnLine(record, job, user, _at(since), _at(until), units, Fraction(num, den), left)
        for record, job, user, since, until, units, num, den, left, *_ in rows[:PAGE]
    ]
    last = (
        Cursor(rows[PAGE - 1][RANK], page_jobs[-1].record_id, page_jobs[-1].share)
        if len(rows) > PAGE
        else None
    )
    return Page(page_jobs, rows[0][JOBS] if rows else 0, last)


def _largest_rows(cursor: Any, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Of what is kept of a line; jobs that no table has are looked for in files."""
    cursor.execute(sql.KEPT_PAGE, values | {"kept": KEPT})
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    if gone := [row[0] for row in rows if row[LEFT]]:
        absent_records.show_records(gone)
        cursor.execute(sql.KEPT_PAGE, values | {"kept": KEPT})
        rows = cursor.fetchall()
    return rows


def as_csv(invoice: Invoice, lines: Sequence[InvoiceLine]) -> Iterator[bytes]:
    """One row per job and line, header first, as the database writes them, in pieces of BLOCK bytes and a row.

    Raises RowsInFilesError at once where rows of it cannot be read.

    `units` × `share` are the job's exact resource-seconds; those of a line add up to it. `hours` and
    `amount` are the same, shortened to be read. Behind all jobs stand the lines without any, with their amounts.
    """
    with_jobs = sorted(filter(_has_jobs, lines), key=lambda line: line.position)
    reach = _reach(invoice, with_jobs)
    absent_records.refuse_unreadable(_absent(reach))
    return _as_csv(invoice, with_jobs, reach, [line for line in lines if not _has_jobs(line)])


def _as_csv(
    invoice: Invoice, lines: Sequence[InvoiceLine], reach: dict[str, Any], amounts: Sequence[InvoiceLine]
) -> Iterator[bytes]:
    # Here, as a stream begins in a transaction of its own.
    absent_records.show(_absent(reach), most=None)
    for part in _split_lines(invoice, lines):
        covered = {name: reach[name][part] for name in OF_EACH_LINE}
        yield from _csv_blocks(invoice, lines[part], reach | covered, has_header=part.start == 0)
    if amounts:
        yield _without_jobs(invoice, amounts)


def _split_lines(invoice: Invoice, lines: Sequence[InvoiceLine]) -> list[slice]:
    """The lines as they are written: the first alone where many jobs stand behind them, so that it waits for no other.

    One query, of several lines.
    """
    if len(lines) > 1:
        counts = LineJobs.objects.filter(line__in=lines, tenant=invoice.tenant_id)
        if (counts.aggregate(jobs=Sum("jobs"))["jobs"] or 0) > MANY_JOBS:
            return [slice(0, 1), slice(1, None)]
    return [slice(0, None)]


def _csv_blocks(
    invoice: Invoice, lines: Sequence[InvoiceLine], reach: Mapping[str, Any], *, has_header: bool
) -> Iterator[bytes]:
    values = {
        **reach,
        "has_header": has_header,
        "number": invoice.number,
        "currency": invoice.currency,
        "formula": FORMULA,
        "descriptions": [line.description for line in lines],
        "names": [line.project for line in lines],
        "meters": [line.unit for line in lines],
        "unit_prices": [line.unit_price for line in lines],
        "hour_prices": [hour_price(line) for line in lines],
    }
    statement = connection.ops.compose_sql(sql.CSV, values)  # type: ignore[attr-defined]  # of PostgreSQL
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        block = bytearray()
        for row in copy:
            block += row
            if len(block) >= BLOCK:
                yield bytes(block)
                block.clear()
        if block:
            yield bytes(block)


def _absent(reach: Mapping[str, Any]) -> list[date]:
    """Months with rows behind the lines that stand in files alone."""
    return absent_records.list_of_rows(
        (period, after, reach["through"])
        for period, after in zip(reach["periods"], reach["after"], strict=True)
    )


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
        "first_month": min((start for start, _ in spans), default=invoice.period_start).date().replace(day=1),
        "end": max((end for _, end in spans), default=invoice.period_end),
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
