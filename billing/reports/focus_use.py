"""What of documents' lines each user of each account used, read of many documents at once.

Rated usage stands in tables of months, in no order of tenants: a statement reads the months of its lines whole, for one
document or for many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import Sum

from billing.models import InvoiceLine, LineJobs
from billing.rating import billed_usage
from billing.reports.focus_documents import Document
from billing.rules.meters import MAX_PRICE_DECIMALS
from billing.rules.money import exponent, rounded_text
from billing.rules.price_shares import per_hour
from clusters import absent_records
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from portal.sql_files import Statements

sql = Statements(__file__, "focus_use.sql")

BATCH = 2_000  # rows fetched at once
MANY_JOBS = 5_000  # behind the lines of a document, above which its file begins with the first line alone
Line = tuple[int, Document, InvoiceLine]
"""A line with its document and that one's place among those that are read together."""


class Part(NamedTuple):
    """What one user used of a line on one day, in texts as they are written."""

    position: int
    since: str
    until: str
    cluster: str
    account: str
    user: str
    queue: str
    model: str
    jobs: int
    minor: int
    quantity: str  # hours
    cost: str  # unit price × quantity, exactly


def read(documents: Sequence[Document], *, own: bool) -> Iterator[tuple[Document, Iterator[Part]]]:
    """Each document with the parts of its lines in their order, to be taken before the next document is.

    `own`: inside the scope of the one tenant, whose pages may read files of dropped months. Needs a transaction.
    """
    lines = [
        (place, document, line)
        for place, document in enumerate(documents)
        for line in sorted(document.lines, key=lambda line: line.position)
        if line.seconds_num and line.used_by() is None and line.price_id
    ]
    months = absent_records.list_of_periods(line.service_period_id for _, _, line in lines) if lines else []
    if months and len(documents) > 1:  # files are read for one tenant
        for document in documents:
            yield from read([document], own=own)
        return
    with nullcontext() if own or not months else _in_scope_of(documents[0].tenant):
        absent_records.show(months, most=None)
        groups = groupby(_parts(lines), key=itemgetter(0))
        ahead = next(groups, None)
        for place, document in enumerate(documents):
            if ahead is None or ahead[0] != place:
                yield document, iter(())
            else:
                yield document, map(itemgetter(1), ahead[1])
                ahead = next(groups, None)


@contextmanager
def _in_scope_of(tenant: Tenant) -> Iterator[None]:
    """For an operator: files are read in the scope of one tenant after another, and nothing of them stays shown.

    What was made for it is rolled back: dropped, its locks would stay to the end of the export, some hundred of each
    document, and fill the server's table of locks.
    """
    with tenant_scope(tenant):
        mark = transaction.savepoint()
        yield
        transaction.savepoint_rollback(mark)
        transaction.savepoint_commit(mark)


def _parts(lines: Sequence[Line]) -> Iterator[tuple[int, Part]]:
    """The places of documents, each with a part of one of its lines."""
    for some in _split_lines(lines):
        with connection.chunked_cursor() as cursor:
            cursor.execute(sql.USE, _reach(some))
            while rows := cursor.fetchmany(BATCH):
                for number, *values in rows:
                    place, _, line = some[number]
                    yield place, Part(line.position, *values)


def _split_lines(lines: Sequence[Line]) -> list[Sequence[Line]]:
    """The lines to be read part by part. One query, of several lines of one document.

    The first is a part of its own where many jobs stand behind them: what reads a file waits for no other line. Both
    parts read the month of all tenants, so several documents, small ones, and those whose jobs were not counted yet,
    are one part.
    """
    if len(lines) > 1 and lines[0][0] == lines[-1][0] and lines[0][2].pk:
        tenant = lines[0][1].tenant
        counts = LineJobs.objects.filter(line__in=[line for _, _, line in lines], tenant=tenant)
        if (counts.aggregate(jobs=Sum("jobs"))["jobs"] or 0) > MANY_JOBS:
            return [lines[:1], lines[1:]]
    return [lines] if lines else []


def _reach(lines: Sequence[Line]) -> dict[str, Any]:
    """Which rated rows each line covers, as `billing.queries.line_usage` tells it of issued invoices."""
    ends = [line.service_period.end for _, _, line in lines]
    afters = [
        billed_usage.through(document.before, end) for (_, document, _), end in zip(lines, ends, strict=True)
    ]
    throughs = [document.rated_through for _, document, _ in lines]
    tenants = [document.tenant.pk for _, document, _ in lines]
    covered = {*zip(tenants, throughs, strict=True), *zip(tenants, afters, strict=True)}
    moments = sorted((tenant, moment) for tenant, moment in covered if moment)
    starts = [line.service_period.start.astimezone(UTC).date() for _, _, line in lines]
    return {
        "numbers": [*range(len(lines))],
        "tenants": tenants,
        "periods": [line.service_period_id for _, _, line in lines],
        "projects": [line.project_id for _, _, line in lines],
        "prices": [line.price_id for _, _, line in lines],
        "afters": afters,
        "throughs": throughs,
        "hour_prices": [hour_price(line, document.currency) for _, document, line in lines],
        "amounts": [line.amount for _, _, line in lines],
        "minors": [10 ** exponent(document.currency) for _, document, _ in lines],
        "all_tenants": sorted(set(tenants)),
        "newest": max(throughs),
        "first_month": min(starts).replace(day=1),
        "end": max(ends),
        "changed_tenants": [tenant for tenant, _ in moments],
        "moments": [moment for _, moment in moments],
    }


def hour_price(line: InvoiceLine, currency: str) -> Decimal:
    """What an hour of the line costs; of a price over several projects their average, to 12 decimals."""
    if not line.terms:
        return line.unit_price or Decimal(0)
    return max(Decimal(rounded_text(per_hour(line.terms, currency).amount, MAX_PRICE_DECIMALS)), Decimal(0))
