"""How much of a tenant's runs now, as the page *Live* lists it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

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
    with prepared_cursor() as cursor:
        cursor.execute(sql.RUNNING, {"tenant": tenant.pk, **running_values(marks)})
        return sum_running(cursor.fetchall())


def running_values(marks: Sequence[Mark]) -> dict[str, Any]:
    """Since when a run has to have been seen, by cluster, as statements take it."""
    since = seen_since(marks)
    return {"clusters": list(since), "since": list(since.values())}


def sum_running(rows: Iterable[Sequence[int]]) -> RunningNow:
    """Of rows by the part of a GPU that each job holds: numerator, denominator, jobs, GPUs."""
    listed = list(rows)
    return RunningNow(
        sum(jobs for _, _, jobs, _ in listed),
        sum((Fraction(gpus * num, den) for num, den, _, gpus in listed), Fraction(0)),
    )
