"""Jobs whose rows stand in the files of sealed months: shown where a period, days or one of them is asked for."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from typing import NamedTuple

from billing.models import RatedJob
from billing.queries import jobs
from billing.queries.jobs import Job, JobFilter, Piece, month_of
from clusters import absent_records
from clusters.absent_records import MOST, RowsInFilesError, month_number
from portal.core.tenants.models import Tenant


class JobView(NamedTuple):
    """A job and what it cost, wherever its rows stand."""

    job: Job
    pieces: list[Piece]
    is_month_read: bool
    """Whether files of its month were read, where it or its other parts stand: its parts of that month are counted."""
    is_measured: bool
    """Whether its energy and use beyond requests are to be told. They have records of their own: those of files are not
    shown, and a late record comes back without them.
    """


def load_job(tenant: Tenant, record: int) -> JobView:
    """As `jobs.job`, wherever its rows stand. Raises RatedJob.DoesNotExist, and RowsInFilesError."""
    try:
        job, pieces = jobs.job(tenant, record)
    except RatedJob.DoesNotExist:
        absent_records.show_record(record)
        return JobView(*jobs.job(tenant, record), is_month_read=True, is_measured=False)
    last = month_number(month_of(job.row.ended or job.row.seen_until or 0))
    months = [month_number(month) for month in absent_records.list_all()]
    is_measured = not any(record >> 40 <= month <= max(last, record >> 40) for month in months)
    if job.row.part_of and record >> 40 in months:  # a late one: its other parts are in the file
        with suppress(RowsInFilesError):
            absent_records.show_record(record)
            return JobView(*jobs.job(tenant, record), is_month_read=True, is_measured=is_measured)
    return JobView(job, pieces, is_month_read=False, is_measured=is_measured)


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


def absent_months_of_parts(view: JobView) -> str:
    """Those of which parts of a job that stands in parts are not counted; without a query where it does not."""
    row = view.job.row
    if not row.part_of:
        return ""
    months = absent_records.list_own()
    shown = row.record_id >> 40 if view.is_month_read else None
    return absent_records.months_text([one for one in months if month_number(one) != shown])


def _months(filters: JobFilter) -> list[date]:
    months: set[date] = set()
    if filters.period is not None:
        months.update(absent_records.list_between(*jobs.seconds_of(filters.period)))
    if filters.ran is not None:
        months.update(absent_records.list_between(*filters.ran))
    return sorted(months)
