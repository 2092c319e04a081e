"""How busy Slurm's jobs were, from the Prometheus that watches their devices: read beside the scheduler.

Its trouble never is the scheduler's: what cannot be read is told, and tried again from its own watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice

import structlog
from django.db import transaction

from clusters import ledger, sources, utilisation, watermark
from clusters.connectors.base import ConnectorError
from clusters.connectors.clocks import refuse_skew
from clusters.connectors.prometheus.connector import JobHour, JobTelemetry
from clusters.models import Connection, Telemetry
from clusters.utilisation import StoredHours

log = structlog.get_logger("clusters.telemetry")

BATCH = 20_000  # hours of jobs in one transaction
FARTHEST = timedelta(days=31)  # before now, where the first reading begins at most
HOUR = timedelta(hours=1)
SETTLE = timedelta(minutes=11)  # after an hour, before it is read: what is late is there by then
FIRST_BACKOFF = timedelta(minutes=2)  # doubles with each failure, up to an hour


@dataclass(frozen=True, slots=True)
class Read:
    """What a reading gave. `error` is a sentence, "" where there was none."""

    hours: StoredHours = field(default_factory=StoredHours)
    error: str = ""


def read_due(connection: Connection, *, clock: Callable[[], int], stored: Callable[[], None]) -> Read | None:
    """Read what the cluster's telemetry tells of its jobs, the look-back of its connection again; None: not due.

    Called alone with the cluster. Never raises for what is not right with the telemetry. Run again, or after a kill,
    it stores what is missing: the watermark moves when all hours before it are stored. `stored` is called in the
    transaction of each batch that changed something, while `utilisation_changed` names the records.
    """
    row = Telemetry.objects.filter(cluster=connection.cluster_id, enabled=True).first()
    now = datetime.fromtimestamp(clock(), UTC)
    if row is None or (row.next_at is not None and now < row.next_at):
        return None
    try:
        hours = _read(row, since=_beginning(row, connection, now), clock=clock, stored=stored)
    except ConnectorError as error:
        return _failed(row, now, str(error), retry=error.retry)
    except Exception as error:  # whatever it is, the scheduler was read
        log.exception("telemetry failed", cluster=connection.cluster.name)
        sentence = f"Something failed here, not at the telemetry ({type(error).__name__}); the worker's log says what."
        return _failed(row, now, sentence, retry=True)
    return Read(hours)


def _beginning(row: Telemetry, connection: Connection, now: datetime) -> datetime:
    look_back = timedelta(hours=connection.look_back)
    if row.complete_through is not None:
        return row.complete_through - look_back
    return max(connection.first_usage_from or now - look_back, now - FARTHEST)


def _read(
    row: Telemetry, *, since: datetime, clock: Callable[[], int], stored: Callable[[], None]
) -> StoredHours:
    total, now = StoredHours(), datetime.fromtimestamp(clock(), UTC)
    name = row.cluster.name
    if ahead := watermark.ahead(name, row.complete_through, moment=now, whose=f"{name}'s telemetry"):
        raise ConnectorError("watermark-ahead", retry=False, sentence=ahead.sentence)
    with sources.job_telemetry(row, clock=clock) as source:
        hours = source.hours(since=int(since.timestamp()), until=clock())
        for batch in _batches(hours):
            _refuse_skew(source)
            with transaction.atomic():
                ledger.lock(row.cluster)
                batch_hours = utilisation.store_jobs(cluster=row.cluster, hours=batch)
                if batch_hours.changed:
                    stored()
                _stored_before(row, batch[-1].hour)
            total += batch_hours
        _refuse_skew(source)
        now = datetime.fromtimestamp(clock(), UTC)
        through = (
            datetime.fromtimestamp(source.complete_through, UTC)
            if source.complete_through is not None
            else None
        )
        if through is None or (row.complete_through is not None and through < row.complete_through):
            through = row.complete_through
        Telemetry.objects.filter(pk=row.pk).update(
            complete_through=through,
            next_at=max(through + HOUR + SETTLE, now + SETTLE) if through is not None else now + SETTLE,
            failures=0,
            last_error="",
            last_success_at=now,
            notes="\n".join([*source.notes, *total.sentences()]),
        )
    return total


def _refuse_skew(source: JobTelemetry) -> None:
    if source.clocks is not None:
        refuse_skew(source.clocks, "the telemetry's Prometheus")


def _stored_before(row: Telemetry, hour: int) -> None:
    """Rows come in order of hours, so that a reading which fails later goes on from here."""
    moment = datetime.fromtimestamp(hour, UTC)
    if row.complete_through is None or row.complete_through < moment:
        row.complete_through = moment
        Telemetry.objects.filter(pk=row.pk).update(complete_through=moment)


def _batches(hours: Iterator[JobHour]) -> Iterator[list[JobHour]]:
    while batch := list(islice(hours, BATCH)):
        yield batch


def _failed(row: Telemetry, now: datetime, sentence: str, *, retry: bool) -> Read:
    wait = min(FIRST_BACKOFF * (1 << min(row.failures, 10)), HOUR) if retry else HOUR
    Telemetry.objects.filter(pk=row.pk).update(
        failures=row.failures + 1, last_error=sentence, next_at=now + wait
    )
    return Read(error=sentence)
