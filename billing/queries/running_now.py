"""How much of a tenant's runs now, as the page *Live* lists it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from billing.queries.live import seen_since
from clusters.usage import Mark
from portal.core.tenants.models import Tenant
from portal.prepared import prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "live.sql")


@dataclass(frozen=True, slots=True)
class RunningNow:
    """Jobs that run as of the last reading of their clusters, and the GPUs that they hold; of a slice its part."""

    jobs: int
    gpus: Fraction


def count_running(tenant: Tenant, marks: Sequence[Mark]) -> RunningNow:
    """Whose jobs are counted is the scope's matter. One query."""
    since = seen_since(marks)
    with prepared_cursor() as cursor:
        cursor.execute(
            sql.RUNNING, {"tenant": tenant.pk, "clusters": list(since), "since": list(since.values())}
        )
        rows = cursor.fetchall()
    return RunningNow(
        sum(jobs for _, _, jobs, _ in rows),
        sum((Fraction(gpus * num, den) for num, den, _, gpus in rows), Fraction(0)),
    )
