"""Accounting files that came by the API: stored in pieces, imported by one worker at a time.

Where a worker dies, another one goes on.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

from django.db import connection, transaction

from billing.rating import ingest
from clusters import watermark
from clusters.connectors.base import ConnectorError
from clusters.models import Cluster, ClusterKind, FileFormat, Pull, UsageFile
from portal.core import locks
from portal.core.audit import acting_as
from portal.core.locks import Work
from portal.sentences import sentence

ATTEMPTS = 5
"""Workers that may die over a file before it is given up."""
LARGEST = 1 << 30  # bytes
COPY_PART = "COPY clusters_usagefilepart (file_id, place, content) FROM STDIN (FORMAT binary)"
"""A fifth of the time of an INSERT, whose text has two digits for each byte."""


class FileRefusedError(Exception):
    """The file cannot be imported so; the message says why and what to do."""


@transaction.atomic
def store_file(
    *,
    cluster: Cluster,
    name: str,
    kind: FileFormat,
    pieces: Iterable[bytes],
    as_of: datetime | None,
    by: str,
    moment: datetime,
) -> UsageFile:
    """Keep the file until a worker has imported it. The same content under the same name again is the same file.

    One that failed is tried again. Raises FileRefusedError for a cluster that is fed by pushed usage, for what is
    empty or larger than 1 GiB, and for an `as_of` that lies in the future.
    """
    if cluster.kind == ClusterKind.PUSH:
        raise FileRefusedError(
            f"{cluster.name} is fed by pushed usage: a job of a file would be billed beside it. Import into a "
            "cluster of the kind import."
        )
    if as_of is not None and as_of > moment + watermark.TOLERANCE:
        raise FileRefusedError(
            f"Nobody can have looked as far as {as_of:%Y-%m-%dT%H:%M:%SZ}: it lies in the future."
        )
    row = UsageFile.objects.create(
        cluster=cluster, name=name, format=kind, as_of=as_of, digest=uuid.uuid4().hex, size=0,
        requested_by=by, requested_at=moment,
    )  # fmt: skip
    digest, size = hashlib.sha256(), 0
    for place, piece in enumerate(pieces):
        digest.update(piece)
        size += len(piece)
        if size > LARGEST:
            raise FileRefusedError("The file is larger than 1 GiB: export shorter periods.")
        with (
            connection.wrap_database_errors,  # which Django does for no COPY
            connection.cursor() as cursor,
            cursor.copy(COPY_PART) as copy,
        ):
            copy.set_types(["int8", "int4", "bytea"])
            copy.write_row((row.pk, place, piece))
    if not size:
        raise FileRefusedError("The file is empty.")
    existing = UsageFile.objects.filter(
        cluster=cluster, name=name, digest=digest.hexdigest(), error=""
    ).first()
    if existing is not None:
        row.delete()
        return existing
    row.digest, row.size = digest.hexdigest(), size
    row.save(update_fields=["digest", "size"])
    return row


def import_file(file_id: int, *, clock: Callable[[], datetime]) -> bool:
    """Import the file and forget its content; whether this call did anything.

    Called again, or by two workers at once, it goes on where it ended: what is stored changes nothing. One file of a
    cluster at a time: however many wait, other clusters find a worker.
    """
    cluster = UsageFile.objects.values_list("cluster", flat=True).get(pk=file_id)
    with locks.alone(Work.IMPORTING, cluster) as ours:
        row = (
            UsageFile.objects.select_related("cluster").filter(pk=file_id, ended_at=None).first()
            if ours
            else None
        )
        if row is None:
            return False
        row.started_at, row.attempts = row.started_at or clock(), row.attempts + 1
        row.save(update_fields=["started_at", "attempts"])
        if row.attempts > ATTEMPTS:
            return _end(
                row, "It was begun several times and never ended: the worker's log says why.", clock()
            )
        try:
            with TemporaryDirectory() as folder, acting_as(row.requested_by, why=row.name):
                _ingest(row, Path(folder) / row.name, clock())
        except ConnectorError as error:
            return _end(row, sentence(error), clock())
        return _end(row, "", clock())


def _ingest(row: UsageFile, path: Path, moment: datetime) -> None:
    from clusters.connectors.accounting import formats  # the connectors load 5 MiB that others do without
    from clusters.connectors.mig import own_shares
    from clusters.meters import load_units
    from clusters.sources import refuse_twice

    refuse_twice(row.cluster, FileFormat(row.format))
    with path.open("wb") as file:
        for place in range(row.parts.count()):
            file.write(row.parts.values_list("content", flat=True).get(place=place))
    export = formats.open_export(
        path,
        row.format,
        zone=ZoneInfo(row.cluster.timezone),
        shares=own_shares(row.cluster.shares, "shares"),
        meters=load_units(),
    )

    def record_pull(_: object) -> None:
        if row.pull_id is None:
            newest = Pull.objects.filter(cluster=row.cluster, source=row.name).order_by("-pk").first()
            row.pull = newest
            row.save(update_fields=["pull"])

    ingest.ingest(
        cluster=row.cluster,
        rows=export.rows(),
        reading=export.reading,
        source=row.name,
        moment=moment,
        as_of=row.as_of,
        progress=record_pull,
    )
    row.pull = Pull.objects.filter(cluster=row.cluster, source=row.name).order_by("-pk").first()


@transaction.atomic
def _end(row: UsageFile, error: str, moment: datetime) -> bool:
    row.error, row.ended_at = error, moment
    row.save(update_fields=["error", "ended_at", "pull"])
    row.parts.all().delete()
    return True
