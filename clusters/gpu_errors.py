"""Errors of GPUs from the Prometheus that a cluster already has: read hour by hour, stored once, matched with runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from django.db import connection as database
from django.db import transaction

from clusters import sources, watermark
from clusters.connectors.base import ConnectorError
from clusters.connectors.clocks import refuse_skew
from clusters.connectors.prometheus.gpu_errors import GpuError as Read
from clusters.connectors.prometheus.gpu_errors import GpuErrors
from clusters.models import Connection, GpuError, GpuErrorReading
from clusters.telemetry import FARTHEST, FIRST_BACKOFF, HOUR, SETTLE
from portal.sql_files import Statements

sql = Statements(__file__, "gpu_errors.sql")
log = structlog.get_logger("clusters.gpu_errors")

LATE = timedelta(days=3)
"""So long an error waits for a run that is read after it."""


def read_due(*, clock: Callable[[], int]) -> int:
    """Read what is due of each cluster whose Prometheus watches its GPUs; how many errors were new.

    What fails is one cluster's, is told on its row, and is tried again. Run again, or after a kill, it stores what is
    missing.
    """
    now = datetime.fromtimestamp(clock(), UTC)
    rows = Connection.objects.filter(enabled=True).select_related("cluster", "cluster__gpu_error_reading")
    stored = 0
    for connection in rows.order_by("cluster__name"):
        reading = getattr(connection.cluster, "gpu_error_reading", None)
        if reading is None or reading.next_at is None or reading.next_at <= now:
            stored += read(connection, clock=clock)
    return stored


def read(connection: Connection, *, clock: Callable[[], int]) -> int:
    """The same of one cluster, due or not. 0 where no Prometheus watches its GPUs."""
    now = datetime.fromtimestamp(clock(), UTC)
    try:
        source = sources.gpu_errors(connection, clock=clock)
        if source is None:
            return 0
        row, _ = GpuErrorReading.objects.get_or_create(cluster=connection.cluster)
        return _read(row, connection, source, now)
    except ConnectorError as error:
        _failed(connection, now, str(error), retry=error.retry)
    except Exception as error:  # whatever it is, other clusters are read
        log.exception("GPU errors failed", cluster=connection.cluster.name)
        sentence = f"Something failed here, not at the Prometheus ({type(error).__name__}); the worker's log says what."
        _failed(connection, now, sentence, retry=True)
    return 0


def _read(row: GpuErrorReading, connection: Connection, source: GpuErrors, now: datetime) -> int:
    name = connection.cluster.name
    if ahead := watermark.ahead(name, row.complete_through, moment=now, whose=f"{name}'s GPU errors"):
        raise ConnectorError("watermark-ahead", retry=False, sentence=ahead.sentence)
    look_back = timedelta(hours=connection.look_back)
    since = row.complete_through or max(connection.first_usage_from or now - look_back, now - FARTHEST)
    with source:
        errors = list(source.read(since=int(since.timestamp()), until=int(now.timestamp())))
        if source.clocks is not None:
            refuse_skew(source.clocks, "the Prometheus")
    through = source.complete_through
    complete = datetime.fromtimestamp(through, UTC) if through is not None else row.complete_through
    with transaction.atomic():
        before = GpuError.objects.filter(cluster=connection.cluster).count()
        GpuError.objects.bulk_create([_row(connection, one) for one in errors], ignore_conflicts=True)
        stored = GpuError.objects.filter(cluster=connection.cluster).count() - before
        _match(connection, now)
        GpuErrorReading.objects.filter(pk=row.pk).update(
            complete_through=complete,
            next_at=max(complete + HOUR + SETTLE, now + SETTLE) if complete else now + SETTLE,
            failures=0,
            last_error="",
            notes=_note(len(source.undated)),
        )
    return stored


def _row(connection: Connection, one: Read) -> GpuError:
    return GpuError(
        cluster=connection.cluster,
        uuid=one.uuid[:255],
        gpu_slice=one.gpu_slice[:20],
        cause=one.cause,
        at=datetime.fromtimestamp(one.at, UTC),
        clean_until=datetime.fromtimestamp(one.clean_until, UTC),
        node=one.node[:255],
        gpu_model=one.gpu_model[:255],
        jobs=[job[:700] for job in one.jobs],
    )


def _match(connection: Connection, now: datetime) -> None:
    """Name the run of each error that has none yet, where exactly one held the GPU then."""
    with database.cursor() as cursor:
        cursor.execute(sql.MATCH, {"cluster": connection.cluster_id, "since": int((now - LATE).timestamp())})


def _note(undated: int) -> str:
    if not undated:
        return ""
    gpus = "1 GPU" if undated == 1 else f"{undated:,} GPUs"
    return f"The first sample of {gpus} told of an XID: when it happened is not known, so that it counts for no job."


def _failed(connection: Connection, now: datetime, sentence: str, *, retry: bool) -> None:
    row, _ = GpuErrorReading.objects.get_or_create(cluster=connection.cluster)
    wait = min(FIRST_BACKOFF * (1 << min(row.failures, 10)), HOUR) if retry else HOUR
    GpuErrorReading.objects.filter(pk=row.pk).update(
        failures=row.failures + 1, last_error=sentence, next_at=now + wait
    )
