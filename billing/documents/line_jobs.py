"""The jobs behind an invoice line, as its invoice covers them, whatever became of them since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any

from django.db import connection

from billing.models import InvoiceLine
from billing.rating import billed_usage
from billing.rules.meters import meter_of
from clusters import absent_records
from portal.sql_files import Statements

AT_ONCE = 1000  # cuts in memory


@dataclass(frozen=True, slots=True)
class JobCut:
    """What one cut of a job adds to a line: units × share = resource-seconds; negative where taken back."""

    record_id: int
    job_id: str
    name: str
    user: str
    service_from: datetime
    service_to: datetime
    units: int  # resource units × seconds
    share_num: int
    share_den: int

    @property
    def resource_seconds(self) -> Fraction:
        return Fraction(self.units * self.share_num, self.share_den)


sql = Statements(__file__, "line_jobs.sql")


def cuts_of(line: InvoiceLine) -> dict[str, Any]:
    """What the function `line_cuts` takes. Two queries."""
    after = billed_usage.through(billed_usage.before(line.invoice), line.service_period.end)
    return {
        "tenant": line.service_period.tenant_id,
        "payer": line.tenant_id,
        "period": line.service_period_id,
        "project": line.project_id,
        "price": line.price_id,
        "resource": meter_of(line.meter, unit=line.unit).resource,
        "after": after,
        "through": line.invoice.rated_through,
        "start": line.service_period.start,
        "end": line.service_period.end,
    }


def jobs_of(line: InvoiceLine) -> Iterator[JobCut]:
    """The cuts whose sum is the line, in order of time: those rated since the invoice before it.

    None for a line that is an amount alone. Works inside a tenant's scope too: it reads rated usage and
    jobs only. The database keeps what is not taken yet: a line may have millions.
    """
    if line.seconds_num:
        yield from jobs_in(cuts_of(line))


def jobs_in(cuts: Mapping[str, Any]) -> Iterator[JobCut]:
    """The same of what `cuts_of` says of a line, in the scope of the tenant that used it, too, if another one pays.

    Raises RowsInFilesError where their rows cannot be read.
    """
    absent_records.show(absent_of(cuts), most=None)
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql.JOBS, cuts)
        while rows := cursor.fetchmany(AT_ONCE):
            for record, job, name, user, since, until, units, num, den in rows:
                yield JobCut(record, job, name, user, _at(since), _at(until), units, num, den)


def absent_of(cuts: Mapping[str, Any]) -> list[date]:
    """Months with rows behind the line that stand in files alone."""
    return absent_records.list_of_rows([(cuts["period"], cuts["after"], cuts["through"])])


def _at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
