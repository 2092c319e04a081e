"""What reports of a cluster read dropped months by: everybody's rows, and those of nobody, for an operator.

Usage that is no tenant's is in no tenant's scope, and how long GPUs stood idle while jobs waited is no sum of what
tenants waited. So such reports read all rows at once, as they do in the tables; nothing of them stays shown. In the
scope of a tenant they are not to be had: see `shown_rows`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import groupby
from typing import Any

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Sum

from billing.models import SealedFile, SealedMonth
from billing.sealed_months import everybodys_rows_sql as sql
from billing.sealed_months import load, shown_rows
from billing.sealed_months.month_files import as_month_files_error
from billing.sealed_months.rows_sql import JOBS, NAMES, RATED, RECORDS, Kind
from billing.sealed_months.shown_rows import LONGEST, PATIENCE, Reader
from clusters import absent_records
from clusters.absent_records import MOST, NotShownError
from portal.core.replica import PrimaryNeededError

INTO = {RECORDS.name: "filed_record", RATED.name: "filed_rated", JOBS.name: "filed_job"}


@contextmanager
def shown(
    months: Sequence[date],
    *,
    most: int | None = MOST,
    kinds: Sequence[Kind] = (RECORDS, RATED),
    records: Sequence[int] = (),
) -> Iterator[None]:
    """Within the block, rows of these absent months stand beside those of the tables: all, or of some records.

    Of up to `most` records in all clusters. The block reads, and keeps nothing. Raises RowsInFilesError.
    """
    if not months:
        yield
        return
    with transaction.atomic():
        with absent_records.reading(months), as_month_files_error(), connection.cursor() as cursor:
            _refuse_others(cursor)
            if most is not None and not records and (count := count_records(months)) > most:
                raise NotShownError(f"{count} records")
            files = _files(months, [NAMES, *(kind.name for kind in kinds)])
            cursor.execute(sql.PREPARE)
            with shown_rows.read_files(files, PATIENCE if most else LONGEST) as reader:
                for kind in kinds:
                    _fill(cursor, reader, kind, records)
            cursor.execute(sql.FILLED)
        yield
        transaction.set_rollback(True)


def refuse_unreadable(months: Sequence[date]) -> None:
    """Raise RowsInFilesError where `shown` of any number of records would. Reads no rows."""
    if months:
        with absent_records.reading(months), as_month_files_error():
            shown_rows.refuse_damaged(_files(months, [NAMES, RECORDS.name, RATED.name]))
            with shown_rows.room():
                pass


def count_records(months: Collection[date]) -> int:
    """How many records, of all clusters, the files of these months have. One query."""
    files = _of(months).filter(kind=RECORDS.name)
    return int(files.aggregate(records=Sum("rows"))["records"] or 0)


def _refuse_others(cursor: CursorWrapper) -> None:
    cursor.execute(sql.SCOPE)
    is_operators, on_replica, is_read_only = cursor.fetchone()
    if not is_operators:
        raise NotShownError("a tenant is in scope")
    if on_replica:
        raise PrimaryNeededError
    if is_read_only:
        raise NotShownError("no table may be made")


def _of(months: Collection[date]) -> Any:
    return SealedFile.objects.filter(month__in=SealedMonth.objects.dropped().filter(month__in=list(months)))


def _files(months: Collection[date], kinds: Sequence[str]) -> list[SealedFile]:
    return list(_of(months).filter(kind__in=kinds).select_related("month").order_by("month__month", "pk"))


def _fill(cursor: CursorWrapper, reader: Reader, kind: Kind, records: Sequence[int]) -> None:
    """Show the rows of a kind: the files of all tenants of a month together, since each working table costs locks."""
    program = reader.program
    for month, files in groupby(reader.of(kind.name), key=lambda file: file.month.month):
        paths = [reader.directory / file.path for file in files]
        cursor.execute(kind.working_table())
        if records:
            program.rows.write_text("".join(f"{record:d}\n" for record in records))
            program.pick(paths, kind.record)
            load.copy_further(cursor, program.rows)
        for path in () if records else paths:
            program.read(path)
            load.copy_further(cursor, program.rows)
        cursor.execute(kind.insert(into=INTO[kind.name]), {"names": reader.names.get(month, [])})
        cursor.execute("DROP TABLE sealed_rows")
