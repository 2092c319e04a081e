"""How busy runs were: storing what telemetry told of them, by their keys or by the numbers of their jobs.

In device-seconds: one of a record's `gpus`, also where that is a slice, is one device. What a run held and telemetry
did not cover is unknown: no row says so, the seconds that are missing do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.db import connection

from clusters import temp_tables
from clusters.connectors.base import BusyHour, BusySource
from clusters.models import Cluster
from clusters.partitions import of_partition
from portal.excerpt import quoted
from portal.sql_files import Statements

if TYPE_CHECKING:
    from clusters.connectors.prometheus.connector import JobHour

sql = Statements(__file__, "utilisation.sql")

HOUR = 3600
NOISE = Decimal("1.5")
"""How much more than all the time a device may seem to have worked: that counts as all of it; more cannot be."""

_MOST = Decimal(10) ** 15  # that the column holds before its nine decimals


@dataclass(frozen=True, slots=True)
class Odd:
    """Hours that were not stored for one reason, and one of them."""

    count: int = 0
    example: str = ""

    def __add__(self, other: Odd) -> Odd:
        return Odd(self.count + other.count, self.example or other.example)


@dataclass(frozen=True, slots=True)
class StoredHours:
    """What became of hours: `read` is all of them, `changed` those that were new or said something else."""

    read: int = 0
    changed: int = 0
    unknown: Odd = field(default_factory=Odd)  # of runs that the ledger does not hold
    refused: Odd = field(default_factory=Odd)  # that cannot be true

    def __add__(self, other: StoredHours) -> StoredHours:
        return StoredHours(
            self.read + other.read,
            self.changed + other.changed,
            self.unknown + other.unknown,
            self.refused + other.refused,
        )

    def sentences(self) -> list[str]:
        """For the operator: what was not stored, why, and what to do."""
        sentences = []
        if self.unknown.count:
            sentences.append(
                f"{_hours(self.unknown.count)} of utilisation left out, of runs that are not recorded here "
                f"({self.unknown.example}): rows in quarantine may be theirs, or their usage was never read."
            )
        if self.refused.count:
            sentences.append(
                f"{_hours(self.refused.count)} of utilisation left out as impossible ({self.refused.example}): reports "
                "tell that time as unknown; check the metric and its divisor in the connection's options."
            )
        return sentences


def _hours(count: int) -> str:
    return "1 hour" if count == 1 else f"{count} hours"


def store(*, cluster: Cluster, hours: Sequence[BusyHour]) -> StoredHours:
    """Write what differs from what stands; of one run's hour told twice, the last word. Runs in a transaction.

    The facts of these runs are stored before, and the cluster is locked. The same again changes nothing. What cannot
    be true (`impossible`, or more than the run's devices have seconds) and what belongs to no record is counted.
    """
    if not hours:
        return StoredHours()
    refused = Odd()
    newest: dict[tuple[str, int], BusyHour] = {}
    for row in hours:
        if why := impossible(row):
            refused += Odd(1, why)
        else:
            newest[row.source_key, row.hour] = row
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "UTILISATION")
        with cursor.copy(sql.COPY_STAGE) as copy:
            copy.write("".join(map(_line, newest.values())).encode())
        changed, strangers, stranger, large, example = _merge(cursor, cluster)
    if large:
        refused += Odd(large, f"{example} had more seconds than its devices")
    return StoredHours(len(hours), changed, Odd(strangers, stranger or ""), refused)


def impossible(row: BusyHour) -> str:
    """Why it cannot be true whatever the run held, or "": "pod-1/main/gpu at 10: 30 busy seconds of 12"."""
    where = f"{quoted(row.source_key)} in the hour from {row.hour}"
    if row.hour % HOUR or not 0 < row.hour < 2**40:
        return f"{where}, where no hour begins"
    if not row.busy.is_finite() or not 0 <= row.covered < 2**62:
        return f"{where} was covered for {row.covered} s and busy for {row.busy} s"
    if not 0 <= row.busy <= min(row.covered * NOISE, _MOST):
        return f"{where} was busy for {row.busy.normalize():f} s of {row.covered} s"
    return "\\x00 in a name" if "\x00" in row.source_key + row.metric else ""


def _merge(cursor: Any, cluster: Cluster) -> tuple[Any, ...]:
    cursor.execute(sql.MONTHS)
    for month, partition in cursor.fetchall():
        find = of_partition(sql.FIND, partition)
        cursor.execute(find, {"cluster": cluster.pk, "month": month})
    cursor.execute(sql.FIND_HELD, {"cluster": cluster.pk})
    cursor.execute(sql.MERGE)
    found: tuple[Any, ...] = cursor.fetchone()
    return found


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def _line(row: BusyHour) -> str:
    """A line of COPY's text format."""
    key, metric = row.source_key.translate(_ESCAPES), row.metric.translate(_ESCAPES)
    busy = min(row.busy, Decimal(row.covered))
    return f"{key}\t{row.hour}\t{busy:f}\t{row.covered}\t{row.source.value}\t{metric}\n"


def store_jobs(*, cluster: Cluster, hours: Sequence[JobHour]) -> StoredHours:
    """`store` for hours that name jobs as Slurm numbers them, of the cluster's runs that overlap them.

    Several runs of one number in an hour (a job that was requeued) share it by what each held of it. Device-seconds
    beyond what the run held go, with their part of `busy`: DCGM does not know when in the hour it began. Hours of jobs
    that held no GPU here are counted as unknown.
    """
    if not hours:
        return StoredHours()
    lines = (
        f"{one.job_id.translate(_ESCAPES)}\t{one.hour}\t{one.busy:f}\t{one.covered}\t{one.metric.translate(_ESCAPES)}\n"
        for one in hours
    )
    begins = [one.hour for one in hours]
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "UTILISATION")
        with cursor.copy(sql.COPY_JOBS) as copy:
            copy.write("".join(lines).encode())
        span = {"since": min(begins), "until": max(begins) + HOUR}
        cursor.execute(sql.STAGE_JOBS, {"cluster": cluster.pk, "source": BusySource.DEVICE.value, **span})
        strangers, stranger = cursor.fetchone()
        changed = _merge(cursor, cluster)[0]
    return StoredHours(len(hours), changed, Odd(strangers, f"job {stranger}" if stranger else ""))
