"""How many jobs of each group ran in two ranges of days, and the job array that most of them are tasks of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar
from zoneinfo import ZoneInfo

from django.db import connection

from billing.models import Resource
from billing.queries.cost_explorer import CostQuery, Days
from billing.queries.usage_series import Grouping
from billing.rules.period import midnight
from billing.rules.spend_change import Runs
from clusters import absent_records
from clusters.absent_records import RowsInFilesError
from portal.core import locks
from portal.core.tenants.models import Tenant
from portal.errors import CodedError
from portal.sql_files import Statements

sql = Statements(__file__, "run_counts.sql")

MOST_RUNS = 100_000  # of both ranges together, which a page counts in a quarter of a second
MOST_ON_REQUEST = 2_000_000  # the same where somebody asks for it; more are not counted
OF_GPUS = (Resource.GPU, Resource.GPU_MEMORY)


class RunsBusyError(CodedError):
    """Somebody has many runs of the tenant counted, which one at a time may."""

    sentences: ClassVar[Mapping[str, str]] = {
        "busy": "Runs of this tenant are being counted already: ask again in some seconds."
    }


@dataclass(frozen=True, slots=True)
class JobArray:
    """The arrays of one user and name, as one."""

    user: str
    name: str
    tasks: int  # that ran in a range


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Of a group. `array`: the largest of the later range, or of the earlier one where that has none."""

    runs: Runs
    array: JobArray | None


Counts = Callable[[tuple[str, ...], str], RunCounts | None]
"""By a group's values and the resource; None of what has no runs."""


@dataclass(slots=True)
class _Counted:
    """In the earlier range and the later one."""

    all: list[int] = field(default_factory=lambda: [0, 0])
    on_gpus: list[int] = field(default_factory=lambda: [0, 0])
    arrays: list[JobArray | None] = field(default_factory=lambda: [None, None])


def show_runs(tenant: Tenant, query: CostQuery) -> str:
    """Have runs of dropped months counted until the transaction ends; returns months of which none can be, as text.

    In the tenant's scope, before that of acting. Two queries where no month is dropped.
    """
    ranges = (_seconds(days, tenant.zone) for days in (query.earlier, query.later))
    months = sorted({month for since, until in ranges for month in absent_records.list_between(since, until)})
    try:
        absent_records.show(months)
    except RowsInFilesError:
        return absent_records.months_text(months)
    return ""


def hold_many(tenant: Tenant) -> None:
    """Before more than MOST_RUNS are counted. Raises RunsBusyError while another transaction has called it."""
    if not locks.try_hold(locks.Work.COUNTING_RUNS, tenant.pk):
        raise RunsBusyError("busy")


def load_run_counts(tenant: Tenant, query: CostQuery, *, most: int) -> Counts | None:
    """None where more than `most` ran. One query; `show_runs` comes before it.

    A job that ran in both ranges counts in both, one of several pods once, an array task by task. By meter: all jobs,
    or of GPUs all that had some.
    """
    values = query.values(tenant) | {"most_runs": most}
    for prefix, days in (("", query.later), ("earlier_", query.earlier)):
        since, until = _seconds(days, tenant.zone)
        values[f"{prefix}since"], values[f"{prefix}until"] = since, until
    with connection.cursor() as cursor:
        cursor.execute(sql.RUNS, values)
        rows = cursor.fetchall()
    counted: dict[tuple[str, ...], _Counted] = {}
    rows_read = 0
    for earlier, key1, key2, count, runs, on_gpus, user, name, tasks in rows:
        rows_read += count
        one = counted.setdefault((key1, key2)[: len(query.by)], _Counted())
        place = 0 if earlier else 1
        one.all[place], one.on_gpus[place] = runs, on_gpus
        one.arrays[place] = JobArray(user, name, tasks) if tasks else None
    if rows_read > most:
        return None

    def counts(group: tuple[str, ...], resource: str) -> RunCounts | None:
        if resource not in Resource.values:
            return None
        key = tuple("" if by is Grouping.METER else value for by, value in zip(query.by, group, strict=True))
        one = counted.get(key, _Counted())
        number = one.on_gpus if resource in OF_GPUS else one.all
        return RunCounts(Runs(*number), one.arrays[1] or one.arrays[0])

    return counts


def _seconds(days: Days, zone: ZoneInfo) -> tuple[int, int]:
    first, end = (int(midnight(day, zone=zone).timestamp()) for day in (days.first, days.end))
    return first, end
