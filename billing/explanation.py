"""The jobs behind an invoice line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from django.db import connection

from billing import coverage
from billing.models import InvoiceLine

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


_CUTS = """
SELECT r.record_id, coalesce(j.job_id, r.record_id::text), coalesce(j.name, ''), coalesce(j."user", ''),
       r.service_from, r.service_to, sum(r.units)::bigint, r.share_num, r.share_den
FROM billing_ratedusage r
LEFT JOIN billing_ratedjob j ON j.tenant_id = r.tenant_id AND j.record_id = r.record_id
WHERE r.tenant_id = %(tenant)s AND r.period_id = %(period)s AND r.project_id = %(project)s
  AND coalesce(r.payer_id, r.tenant_id) = %(payer)s AND r.price_id = %(price)s
  AND r.id > %(after)s AND r.id <= %(through)s
  AND r.service_month >= date_trunc('month', %(start)s::timestamptz AT TIME ZONE 'UTC')::date
  AND r.service_month <= (%(end)s::timestamptz AT TIME ZONE 'UTC')::date
GROUP BY r.record_id, j.job_id, j.name, j."user", r.service_from, r.service_to, r.share_num, r.share_den
HAVING sum(r.units) <> 0
ORDER BY r.service_from, r.record_id, r.service_to
"""


def jobs_of(line: InvoiceLine) -> Iterator[JobCut]:
    """The cuts whose sum is the line, in order of time: those rated since the invoice before it.

    None for a line that is an amount alone. Works inside a tenant's scope too: it reads rated usage and
    jobs only. The database keeps what is not taken yet: a line may have millions.
    """
    if not line.seconds_num:
        return
    with connection.chunked_cursor() as cursor:
        cursor.execute(
            _CUTS,
            {
                "tenant": line.service_period.tenant_id,
                "payer": line.tenant_id,
                "period": line.service_period_id,
                "project": line.project_id,
                "price": line.price_id,
                "after": coverage.through(coverage.before(line.invoice), line.service_period.end),
                "through": line.invoice.rated_through,
                "start": line.service_period.start,
                "end": line.service_period.end,
            },
        )
        while rows := cursor.fetchmany(AT_ONCE):
            for record, job, name, user, since, until, units, num, den in rows:
                yield JobCut(record, job, name, user, _at(since), _at(until), units, num, den)


def _at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
