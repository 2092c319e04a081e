"""Files with the charges of all tenants in a month, for operators: requested, written by one worker at a time, stored.

A worker writes the file on its own disk and stores it whole, so that one that is killed leaves nothing, and the next
writes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Final

import structlog
from django.db import connection, transaction
from django.db.models import F, Q

from billing.models import FocusExport, FocusExportPart, FocusFormat
from billing.reports import focus, focus_files
from billing.reports.focus import Dataset
from billing.reports.focus_files import DISK_FULL, ParquetError
from clusters.absent_records import RowsInFilesError
from portal.core.audit import acting_as
from portal.core.locks import Work, alone
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from portal.errors import CodedError
from portal.sentences import sentence
from portal.sql_files import Statements

ATTEMPTS: Final = 5
"""Workers that may die over a file before it is given up."""
RETENTION: Final = timedelta(days=7)
"""After that a file is deleted."""
REPLACED_RETENTION: Final = timedelta(hours=1)
"""How long the old file stays once a new one is written: somebody may be downloading it."""
FRESH: Final = timedelta(minutes=5)
"""A file that was written less than this ago is not written again."""
UNFINISHED: Final = 12
"""Files that may wait to be written."""
PART: Final = 1 << 20  # bytes
COPY_PART = "COPY billing_focusexportpart (export_id, place, content) FROM STDIN (FORMAT binary)"

sql = Statements(__file__, "focus_exports.sql")
log = structlog.get_logger(__name__)


class FocusExportError(CodedError):
    """A file cannot be requested or downloaded now; the message says why and what to do."""

    sentences: ClassVar[Mapping[str, str]] = {
        "being-written": "The file of {month} is still being written: wait until it is ready.",
        "given-up": "Its writing was begun {times:,} times and never ended: the worker's log says why. Ask again.",
        "not-written": "The file could not be written: {reason}. Ask again; if it fails again, the worker's log says "
        "more.",
        "just-written": "The file of {month} was written less than {minutes} minutes ago: download it, or ask again "
        "after that time.",
        "too-many": "{count} files are still to be written: wait until one is ready, then ask again.",
        "no-room": "The worker cannot write the file: {reason}. Make room on its disk, then ask again.",
        "removed": "There is no such file: one is deleted after {days} days, once another of its month is written, or "
        "as personal data is erased. Ask for a new one.",
        "other-format": "{person} requested {month} as {format}: wait until that is ready, then ask again.",
        "without-file": "There is no file of {month}: {reason}",
    }


def request_export(*, month: date, kind: FocusFormat, by: str, moment: datetime) -> FocusExport:
    """Keep that the month's file is to be written. Asked again before it is, it is the same export; later a new one.

    Raises FocusExportError while the month is written in another format, for FRESH after its file was written, and
    while UNFINISHED others wait.
    """
    with transaction.atomic(), acting_as(by):
        if not FocusExport.objects.unfinished().filter(month=month).exists():
            _refuse_too_many(month, kind, moment)
        export, is_new = FocusExport.objects.unfinished().get_or_create(
            month=month, defaults={"format": kind, "requested_by": by, "requested_at": moment}
        )
        if export.format != kind:
            raise FocusExportError(
                "other-format",
                person=export.requested_by,
                month=f"{month:%Y-%m}",
                format=export.get_format_display(),
            )
        if is_new:
            outbox.add("billing.reports.tasks.focus_exports_due")
    return export


def _refuse_too_many(month: date, kind: FocusFormat, moment: datetime) -> None:
    written = FocusExport.objects.written().filter(month=month, format=kind)
    if written.filter(ended_at__gt=moment - FRESH).exists():
        raise FocusExportError("just-written", month=f"{month:%Y-%m}", minutes=FRESH // timedelta(minutes=1))
    if FocusExport.objects.unfinished().count() >= UNFINISHED:
        raise FocusExportError("too-many", count=UNFINISHED)


def perform_next(*, clock: Callable[[], datetime]) -> FocusExport | None:
    """Write the file that was requested first; None where there is none, or another worker is at one.

    Called again after a worker died, it begins anew. What was requested anew meanwhile, as names were erased, is not
    stored, and stays requested.
    """
    with alone(Work.EXPORTING_CHARGES) as ours:
        export = FocusExport.objects.unfinished().order_by("pk").first() if ours else None
        if export is None:
            return None
        tenants, moment = list(Tenant.objects.order_by("slug")), clock()
        export.started_at, export.attempts = moment, export.attempts + 1
        export.snapshot = _read_snapshot()
        export.done, export.total = 0, len(tenants)
        with acting_as(export.requested_by):
            export.save()
            try:
                if export.attempts > ATTEMPTS:
                    raise FocusExportError("given-up", times=ATTEMPTS)
                with TemporaryDirectory() as folder:
                    path = Path(folder) / "charges"
                    dataset = _write(export, tenants, path, moment)
                    _store(export, dataset, path, clock)
            except (OSError, ParquetError) as error:
                log.exception("focus export not written")
                _end(export, sentence(_refusal(error)), clock())
            except (FocusExportError, RowsInFilesError) as refusal:
                _end(export, sentence(refusal), clock())
        return export


def _read_snapshot() -> str:
    with connection.cursor() as cursor:
        cursor.execute(sql.SNAPSHOT)
        return str(cursor.fetchone()[0])


def _refusal(error: OSError | ParquetError) -> FocusExportError:
    if isinstance(error, ParquetError):
        return FocusExportError("not-written", reason="the program that writes Parquet failed")
    is_full = error.errno in DISK_FULL
    return FocusExportError("no-room" if is_full else "not-written", reason=error.strerror or str(error))


def _write(export: FocusExport, tenants: list[Tenant], path: Path, moment: datetime) -> Dataset:
    def record_progress(done: int) -> None:
        FocusExport.objects.filter(pk=export.pk).update(done=done)

    month = (export.month.year, export.month.month)
    focus.fetch_files(tenants, month)
    dataset = focus.make_dataset(tenants=tenants, month=month, moment=moment, progress=record_progress)
    with path.open("wb") as file:
        for piece in focus_files.AS[export.format](dataset.charges):
            file.write(piece)
    return dataset


@transaction.atomic
def _store(export: FocusExport, dataset: Dataset, path: Path, clock: Callable[[], datetime]) -> None:
    if not _is_current(export):
        return
    with (
        path.open("rb") as file,
        connection.wrap_database_errors,  # which Django does for no COPY
        connection.cursor() as cursor,
        cursor.copy(COPY_PART) as copy,
    ):
        copy.set_types(["int8", "int4", "bytea"])
        for place, piece in enumerate(iter(lambda: file.read(PART), b"")):
            copy.write_row((export.pk, place, piece))
    export.name = focus_files.file_name(dataset, of="all", extension=export.format)
    export.status, export.size = dataset.status.value, path.stat().st_size
    export.done, export.ended_at = export.total, clock()
    export.save()


@transaction.atomic
def _end(export: FocusExport, error: str, moment: datetime) -> None:
    if _is_current(export):
        export.error, export.ended_at = error, moment
        export.save()


def _is_current(export: FocusExport) -> bool:
    """Whether it is still what this worker took up; nobody changes that before the transaction ends."""
    rows = FocusExport.objects.unfinished().filter(pk=export.pk, started_at=export.started_at)
    return rows.select_for_update().exists()


def open_file(export: FocusExport, *, by: str, moment: datetime) -> Iterator[bytes]:
    """The file, a part at a time, and that `by` downloads it. Raises FocusExportError where there is none."""
    month = f"{export.month:%Y-%m}"
    if export.ended_at is None:
        raise FocusExportError("being-written", month=month)
    if export.error:
        raise FocusExportError("without-file", month=month, reason=export.error)
    with acting_as(by):
        FocusExport.objects.filter(pk=export.pk).update(fetched_by=by, fetched_at=moment)
    return _parts(export)


def _parts(export: FocusExport) -> Iterator[bytes]:
    """Each is a query of its own: a slow reader holds no transaction."""
    for place in range(-(-export.size // PART)):
        yield bytes(FocusExportPart.objects.values_list("content", flat=True).get(export=export, place=place))


def list_newest(count: int) -> list[FocusExport]:
    """The newest first. One query."""
    return list(FocusExport.objects.order_by("-pk")[:count])


def forget_old(*, moment: datetime) -> int:
    """Delete exports that ended longer ago than RETENTION, or were replaced longer ago than REPLACED_RETENTION."""
    old = Q(ended_at__lte=moment - RETENTION)
    replaced = Q(pk__in=FocusExport.objects.replaced(moment - REPLACED_RETENTION).values("pk"))
    return FocusExport.objects.filter(old | replaced).delete()[0]


@transaction.atomic
def forget_names(*, erasure: str, begun_at: datetime) -> None:
    """Delete the files that may have names of this erasure, and have what is being written begun anew.

    `erasure` is the number of its transaction, which began at `begun_at`. What started after its commit stays.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql.STARTED_BEFORE, {"erasure": erasure, "begun_at": begun_at})
        ids = [pk for (pk,) in cursor]
    FocusExport.objects.filter(pk__in=ids, ended_at__isnull=False).delete()
    FocusExport.objects.unfinished().filter(pk__in=ids).update(started_at=None, attempts=F("attempts") - 1)
