"""The jobs behind an invoice line, as its invoice covers them, whatever became of them since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from django.db import connection

from billing.models import DESCRIBED, InvoiceLine
from billing.rating import billed_usage
from billing.rating.resources_sql import amount
from billing.rules.meters import Meter

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


BILLED = """(
    SELECT DISTINCT ON (m.moment, b.record_id) m.moment, b.*
    FROM unnest(%(moments)s::bigint[]) AS m (moment)
    JOIN billing_billedjob b ON b.tenant_id = %(tenant)s AND b.through >= m.moment
    ORDER BY m.moment, b.record_id, b.through
)"""
"""Jobs of the tenant that changed since: by moment, a `rated_through`, how documents up to it cover them.

A job that is not among them stands as it does now.
"""


def described(billed: str, now: str) -> str:
    """The columns of a description: of `billed`, or else as the job is `now`."""
    return ", ".join(
        f'CASE WHEN {billed}.record_id IS NULL THEN {now}."{name}" ELSE {billed}."{name}" END AS "{name}"'
        for name in DESCRIBED
    )


_OF_LINE = """{0}.tenant_id = %(tenant)s AND {0}.period_id = %(period)s AND {0}.project_id = %(project)s
  AND coalesce({0}.payer_id, {0}.tenant_id) = %(payer)s AND {0}.price_id = %(price)s
  AND {0}.service_month >= date_trunc('month', %(start)s::timestamptz AT TIME ZONE 'UTC')::date
  AND {0}.service_month <= (%(end)s::timestamptz AT TIME ZONE 'UTC')::date"""

_SHAPE = ", ".join(f'u."{name}"' for name in DESCRIBED if name not in {"share_num", "share_den"})

# What was covered before and stands differently now is taken back whole, as it was, and told anew: the sum of both is
# what the line adds, and each can be computed by its own description.
CUTS = f"""
WITH rated AS (
    SELECT r.record_id, r.service_from, r.service_to, r.share_num, r.share_den,
           coalesce(sum(r.units) FILTER (WHERE r.id <= %(after)s), 0)::bigint AS before, sum(r.units)::bigint AS stands
    FROM billing_ratedusage r
    WHERE {_OF_LINE.format("r")} AND r.id <= %(through)s AND (%(after)s = 0 OR r.record_id IN (
        SELECT n.record_id FROM billing_ratedusage n
        WHERE {_OF_LINE.format("n")} AND n.id > %(after)s AND n.id <= %(through)s
    ))
    GROUP BY r.record_id, r.service_from, r.service_to, r.share_num, r.share_den
), cut AS (
    SELECT r.record_id, r.service_from, r.service_to, r.share_num, r.share_den, v.units, v.moment
    FROM rated r CROSS JOIN LATERAL (VALUES (-r.before, %(after)s::bigint), (r.stands, %(through)s)) v (units, moment)
    WHERE r.before <> r.stands AND v.units <> 0
)
SELECT u.record_id, {_SHAPE}, u.cut_num AS share_num, u.cut_den AS share_den, u.service_from, u.service_to, u.units,
       {amount("%(resource)s")} AS count
FROM (
    SELECT c.record_id, c.service_from, c.service_to, c.units, c.share_num AS cut_num, c.share_den AS cut_den,
           {described("b", "j")}
    FROM cut c LEFT JOIN {BILLED} b ON b.record_id = c.record_id AND b.moment = c.moment
    LEFT JOIN billing_ratedjob j ON j.tenant_id = %(tenant)s AND j.record_id = c.record_id
) u
"""  # noqa: S608 - built from constants
"""The cuts behind a line, each with its job's description and how many units of the resource it holds."""

ORDER = "service_from, record_id, service_to, units"


def cuts_of(line: InvoiceLine) -> dict[str, Any]:
    """What CUTS takes. One query."""
    after = billed_usage.through(billed_usage.before(line.invoice), line.service_period.end)
    through = line.invoice.rated_through
    return {
        "tenant": line.service_period.tenant_id,
        "payer": line.tenant_id,
        "period": line.service_period_id,
        "project": line.project_id,
        "price": line.price_id,
        "resource": Meter(line.meter).resource,
        "after": after,
        "through": through,
        "moments": [after, through] if after else [through],
        "start": line.service_period.start,
        "end": line.service_period.end,
    }


_JOBS = f"""
SELECT record_id, coalesce(job_id, ''), coalesce(name, ''), coalesce("user", ''), service_from, service_to, units,
       share_num, share_den
FROM ({CUTS}) cuts ORDER BY {ORDER}
"""  # noqa: S608 - built from constants


def jobs_of(line: InvoiceLine) -> Iterator[JobCut]:
    """The cuts whose sum is the line, in order of time: those rated since the invoice before it.

    None for a line that is an amount alone. Works inside a tenant's scope too: it reads rated usage and
    jobs only. The database keeps what is not taken yet: a line may have millions.
    """
    if not line.seconds_num:
        return
    with connection.chunked_cursor() as cursor:
        cursor.execute(_JOBS, cuts_of(line))
        while rows := cursor.fetchmany(AT_ONCE):
            for record, job, name, user, since, until, units, num, den in rows:
                yield JobCut(record, job, name, user, _at(since), _at(until), units, num, den)


def _at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
