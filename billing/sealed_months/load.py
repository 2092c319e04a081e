"""Rows of a sealed month from its files into their tables, each compared with what was sealed."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection
from django.db.backends.utils import CursorWrapper

from billing.models import LateRecord, MonthProof, MonthSum, SealedFile, SealedMonth
from billing.rating import period_jobs
from billing.sealed_months import folder, parquet, verify
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import COPY_IN, KINDS, NAMES, RATED, REVISIONS, Kind
from clusters import usage

PIECE = 1 << 20  # bytes
PARTITIONS = """
SELECT clusters_ensure_records(m.number), billing_ensure_jobs(m.number), billing_ensure_month(%(month)s),
       clusters_ensure_month(%(month)s)
FROM (SELECT month_number(extract(epoch FROM %(month)s::date)::bigint) AS number) m
"""
LATE = """
CREATE TEMP TABLE late_record ON COMMIT DROP AS
SELECT id FROM clusters_usagerecord WHERE id > %(after)s AND id <= %(last)s
"""
LATE_PERIODS = "SELECT DISTINCT period_id FROM billing_ratedusage WHERE record_id IN (TABLE late_record)"
LEAVE_OUT_LATE = "DELETE FROM sealed_rows t WHERE t.{column} IN (TABLE late_record)"


def load(row: SealedMonth) -> dict[str, int]:
    """Insert what the tables lack of the month, which is dropped no more then; how many rows by kind.

    Also what later months, which stay dropped, have of the usage of its jobs. For a caller that has locked the row, and
    rolls back what raises SealError. What files have of late records is left out: the tables have it as it is now.
    """
    loaded = dict.fromkeys((kind.name for kind in KINDS), 0)
    was_dropped = row.dropped_at is not None
    if was_dropped:
        row.dropped_at, row.terms, row.unrated_periods = None, "", None
        row.save(update_fields=["dropped_at", "terms", "unrated_periods"])
    files = verify.files_of(row)
    later = later_files(row) if was_dropped else []
    with checked(row, [*files, *later]) as (directory, program, names), connection.cursor() as cursor:
        cursor.execute(PARTITIONS, {"month": row.month})
        late = _note_late(cursor, row) if was_dropped else []
        for kind in KINDS:
            for file in files:
                if file.kind == kind.name:
                    program.read(directory / file.path)
                    loaded[kind.name] += _insert(
                        cursor,
                        kind,
                        file,
                        program.rows,
                        names,
                        as_owned_now=not was_dropped,
                        without_late=was_dropped and kind is not REVISIONS,
                    )
            if kind is RATED:
                for file in later:
                    program.read(
                        directory / file.path, within=("record_id", *usage.ids_of([row.month])[row.month])
                    )
                    loaded[kind.name] += _insert(
                        cursor, kind, file, program.rows, names, whole=False, without_late=True
                    )
        if was_dropped:
            periods = MonthSum.objects.filter(month=row.month).values_list("period_id", flat=True).distinct()
            period_jobs.keep_anew(cursor, sorted({*periods, *late}))
            cursor.execute("DROP TABLE late_record")
    return loaded


def _note_late(cursor: CursorWrapper, row: SealedMonth) -> list[int]:
    """Have `late_record` hold the month's late records; the billing periods that these have usage in.

    Its proof is of the others alone, also of those that are gone: it is made anew of all.
    """
    after, last = usage.ids_of([row.month])[row.month]
    cursor.execute(LATE, {"after": after, "last": last})
    cursor.execute(LATE_PERIODS)
    periods = [period for (period,) in cursor.fetchall()]
    noted, _ = LateRecord.objects.filter(record_id__gt=after, record_id__lte=last).delete()
    cursor.execute("SELECT EXISTS (TABLE late_record)")
    if cursor.fetchone()[0] or noted:
        MonthProof.objects.filter(month=row.month).update(records=0, last_id=0, held=[], terms="")
    return periods


def later_files(row: SealedMonth) -> list[SealedFile]:
    """Those of other dropped months that have rated usage of the month's jobs, as its proof says."""
    elsewhere = set(
        MonthSum.objects.filter(month=row.month)
        .exclude(service_month=row.month)
        .values_list("service_month", "tenant")
    )
    files = SealedFile.objects.filter(kind="rated", month__in=SealedMonth.objects.dropped()).select_related(
        "month"
    )
    return [file for file in files if (file.month.month, file.tenant_id) in elsewhere]


@contextmanager
def checked(
    row: SealedMonth, files: Iterable[SealedFile]
) -> Iterator[tuple[Path, parquet.Program, list[str]]]:
    """Where files are that are as they were sealed, the program that reads them, and the names that rows refer to.

    Raises SealError for a file that is missing, cut or changed, and for what happens in the block to what reads it.
    """
    files = list(files)
    directory = undamaged(files)
    try:
        with folder.scratch(row.month) as scratch, parquet.program(scratch) as program:
            yield directory, program, names_of(program, directory, files)
    except (OSError, parquet.ParquetError) as error:
        raise SealError("unwritable", month=f"{row}", reason=str(error)) from error


def undamaged(files: Iterable[SealedFile]) -> Path:
    """Where files are that are as they were sealed. Raises SealError for one that is missing, cut or changed."""
    directory = folder.directory()
    for damage in verify.damages(directory, files):
        raise SealError("damaged", place=damage)
    return directory


def names_of(program: parquet.Program, directory: Path, files: Iterable[SealedFile]) -> list[str]:
    """What numbers below zero stand for in rows of a month: the names of users whom no tenant has a number for."""
    for file in files:
        if file.kind == NAMES:
            program.read(directory / file.path)
            with program.rows.open(newline="", encoding="utf-8") as rows:
                return [name for _, name in csv.reader(rows)]
    return []


def copy_in(cursor: CursorWrapper, kind: Kind, rows: Path) -> str:
    """Have `sealed_rows` hold the rows of the file of rows; their SHA-256."""
    cursor.execute(kind.working_table())
    return copy_further(cursor, rows)


def copy_further(cursor: CursorWrapper, rows: Path) -> str:
    """Have `sealed_rows` hold those rows, too; their SHA-256."""
    digest = hashlib.sha256()
    with cursor.copy(COPY_IN) as copy, rows.open("rb") as content:
        while piece := content.read(PIECE):
            copy.write(piece)
            digest.update(piece)
    return digest.hexdigest()


def _insert(
    cursor: CursorWrapper,
    kind: Kind,
    file: SealedFile,
    rows: Path,
    names: list[str],
    *,
    as_owned_now: bool = False,
    whole: bool = True,
    without_late: bool = False,
) -> int:
    """How many were missing. Raises SealError where rows of the file or of the table are not as sealed."""
    digest = copy_in(cursor, kind, rows)
    if without_late:
        cursor.execute(LEAVE_OUT_LATE.format(column=kind.record))
    cursor.execute(kind.leave_missing(as_owned_now=as_owned_now))
    cursor.execute(kind.insert(), {"names": names})
    count: int = cursor.rowcount
    if (whole and digest != file.rows_sha256) or differs(cursor, kind, names):
        raise SealError("loaded-differs", place=file.path)
    cursor.execute("DROP TABLE sealed_rows")
    return count


def differs(cursor: CursorWrapper, kind: Kind, names: list[str]) -> bool:
    """Whether the table has other values than `sealed_rows` in any row of these, or lacks it."""
    cursor.execute(kind.differs(), {"names": names})
    return bool(cursor.fetchone()[0])
