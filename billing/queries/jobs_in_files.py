"""Jobs whose rows stand in the files of sealed months: shown where a period, days or one of them is asked for."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from typing import NamedTuple

from django.db import connection

from billing.queries import jobs
from billing.queries.jobs import Job, JobFilter, Piece, month_of
from clusters import absent_records
from clusters.absent_records import MOST, RowsInFilesError, month_number
from portal.core.tenants.models import Tenant


class JobView(NamedTuple):
    """A job and what it cost, wherever its rows stand."""

    job: Job
    pieces: list[Piece]
    is_measured: bool
    """Whether its energy and use beyond requests are to be told. They have records of their own: those of files are not
    shown, and a late record comes back without them.
    """
    parts_in_files: str
    """Months of which parts of it are not counted, where it stands in parts, as text. Its own month is among them where
    files of that were not read.
    """


_LOOK = """
SELECT ARRAY(SELECT billing_dropped_months()), ARRAY(
    SELECT DISTINCT month FROM billing_own_sealed_files(ARRAY(SELECT billing_dropped_months()))
    WHERE kind = 'jobs' ORDER BY month
), (SELECT part_of FROM billing_ratedjob WHERE tenant_id = %(tenant)s AND record_id = %(record)s)
"""
"""Which months are dropped, those of which the tenant has jobs in files alone, and what a table has of the job."""


def load_job(tenant: Tenant, record: int) -> JobView:
    """As `jobs.job`, wherever its rows stand. Raises RatedJob.DoesNotExist, and RowsInFilesError."""
    with connection.cursor() as cursor:
        cursor.execute(_LOOK, {"tenant": tenant.pk, "record": record})
        dropped, own, part_of = cursor.fetchone()
    months = {month_number(month): month for month in dropped}
    number, is_in_table, is_month_read = record >> 40, part_of is not None, False
    if number in months and not is_in_table:
        absent_records.show_record(months[number], record)
        is_month_read = True
    elif number in months and part_of:  # a late one: its other parts are in the file
        with suppress(RowsInFilesError):
            absent_records.show_record(months[number], record, part_of=part_of)
            is_month_read = True
    job, pieces = jobs.job(tenant, record)
    last = month_number(month_of(job.row.ended or job.row.seen_until or 0))
    uncounted = [one for one in own if not (is_month_read and month_number(one) == number)]
    return JobView(
        job,
        pieces,
        is_measured=is_in_table and not any(number <= one <= max(last, number) for one in months),
        parts_in_files=absent_records.months_text(uncounted) if job.row.part_of else "",
    )


def show(filters: JobFilter, *, most: int | None = MOST) -> None:
    """Have jobs of the period or days that are asked for stand in the lists. Raises RowsInFilesError.

    A query, or none.
    """
    absent_records.show(_months(filters), most=most)


def refuse_unreadable(filters: JobFilter) -> None:
    """Raise RowsInFilesError where they cannot be read; reads none."""
    absent_records.refuse_unreadable(_months(filters))


def absent_months() -> str:
    """Months of which the tenant in scope has jobs that no list has, as text; empty where there are none. One query."""
    return absent_records.months_text(absent_records.list_own())


def _months(filters: JobFilter) -> list[date]:
    months: set[date] = set()
    if filters.period is not None:
        months.update(absent_records.list_between(*jobs.seconds_of(filters.period)))
    if filters.ran is not None:
        months.update(absent_records.list_between(*filters.ran))
    return sorted(months)
