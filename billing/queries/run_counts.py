"""How many jobs of each group ran in two ranges of days, and the job array that most of them are tasks of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, ClassVar
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

MOST_RUNS = 100_000  # of both ranges together, which are counted at once in a quarter of a second
MOST_ON_REQUEST = 2_000_000  # the same by a worker, or where an answer may take long; more are not counted
OF_GPUS = (Resource.GPU, Resource.GPU_MEMORY)
ROWS_READ = 3  # column of the statement


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


def list_absent(tenant: Tenant, query: CostQuery) -> list[date]:
    """Dropped months with runs of the ranges. One query."""
    return absent_records.list_between_any(
        _seconds(days, tenant.zone) for days in (query.earlier, query.later)
    )


def show_runs(tenant: Tenant, query: CostQuery, *, most: int | None = absent_records.MOST) -> str:
    """Have runs of dropped months counted until the transaction ends; returns months of which none can be, as text.

    In the tenant's scope, before that of acting. Not of months with more jobs than `most`. One query where no month is
    dropped.
    """
    months = list_absent(tenant, query)
    try:
        absent_records.show(months, most=most)
    except RowsInFilesError:
        return absent_records.months_text(months)
    return ""


def hold_many(tenant: Tenant) -> None:
    """Before more than MOST_RUNS are counted. Raises RunsBusyError while another transaction has called it."""
    if not locks.try_hold(locks.Work.COUNTING_RUNS, tenant.pk):
        raise RunsBusyError("busy")


def load_run_counts(tenant: Tenant, query: CostQuery, *, most: int) -> Counts | None:
    """None where more than `most` ran. One query; `show_runs` comes before it."""
    rows = load_rows(tenant, query, most=most)
    return None if rows is None else counts_of(rows, query.by)


def load_rows(tenant: Tenant, query: CostQuery, *, most: int) -> list[Sequence[Any]] | None:
    """As `load_run_counts`, for `counts_of`."""
    values = query.values(tenant) | {"most_runs": most}
    for prefix, days in (("", query.later), ("earlier_", query.earlier)):
        since, until = _seconds(days, tenant.zone)
        values[f"{prefix}since"], values[f"{prefix}until"] = since, until
    with connection.cursor() as cursor:
        cursor.execute(sql.RUNS, values)
        rows: list[Sequence[Any]] = cursor.fetchall()
    return None if sum(row[ROWS_READ] for row in rows) > most else rows


def counts_of(rows: Iterable[Sequence[Any]], by: Sequence[Grouping]) -> Counts:
    """A job that ran in both ranges counts in both, one of several pods once, an array task by task.

    By meter: all jobs, or of GPUs all that had some.
    """
    counted: dict[tuple[str, ...], _Counted] = {}
    for earlier, key1, key2, _rows, runs, on_gpus, user, name, tasks in rows:
        one = counted.setdefault((key1, key2)[: len(by)], _Counted())
        place = 0 if earlier else 1
        one.all[place], one.on_gpus[place] = runs, on_gpus
        one.arrays[place] = JobArray(user, name, tasks) if tasks else None

    def counts(group: tuple[str, ...], resource: str) -> RunCounts | None:
        if resource not in Resource.values:
            return None
        key = tuple("" if one is Grouping.METER else value for one, value in zip(by, group, strict=True))
        one = counted.get(key, _Counted())
        number = one.on_gpus if resource in OF_GPUS else one.all
        return RunCounts(Runs(*number), one.arrays[1] or one.arrays[0])

    return counts


def _seconds(days: Days, zone: ZoneInfo) -> tuple[int, int]:
    first, end = (int(midnight(day, zone=zone).timestamp()) for day in (days.first, days.end))
    return first, end
