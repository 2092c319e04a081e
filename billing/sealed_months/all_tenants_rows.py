"""Rows of dropped months for an operator's reports: those of all tenants, and usage that no tenant owns.

Such usage is in no tenant's scope, and how long GPUs stood idle while jobs waited is no sum of what tenants waited. So
these reports read the rows of all tenants, as they do in the tables, but of their own clusters and days alone. In the
scope of a tenant they are not to be had: see `shown_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Sum

from billing.models import SealedFile, SealedMonth
from billing.sealed_months import all_tenants_rows_sql as sql
from billing.sealed_months import load, shown_rows
from billing.sealed_months.month_files import as_month_files_error
from billing.sealed_months.parquet import UsageFilter
from billing.sealed_months.rows_sql import NAMES, RATED, RECORDS, Kind
from billing.sealed_months.shown_rows import LONGEST, PATIENCE, Reader
from clusters import absent_records
from clusters.absent_records import MOST, NotShownError, month_number
from portal.core.replica import PrimaryNeededError

MOST_RECORDS: Final = 2_000_000
"""Records of a report's clusters and days that a worker or a command reads: of these 0.6 GB of records, then 0.3 GB of
rated usage for each resource that is charged, are in /tmp, which is limited or is memory."""


@contextmanager
def cluster_usage(
    clusters: Collection[int], *, since: int, until: int, most: int = MOST, with_rated: bool = True
) -> Iterator[None]:
    """Within the block, statements also find what these clusters have in dropped months of [since, until).

    These are epoch seconds; it finds records that held something or waited in them, and what was rated of those. The
    block cannot write. Raises RowsInFilesError, also where there are more than `most` records.
    """
    months = absent_records.list_between(since, until) if clusters else []
    fill = partial(
        _fill_usage, usage=UsageFilter(tuple(clusters), since, until), most=most, with_rated=with_rated
    )
    kinds = (RECORDS, RATED) if with_rated else (RECORDS,)
    with _filled_tables(months, kinds, PATIENCE if most <= MOST else LONGEST, fill):
        yield


@contextmanager
def selected_records(records: Sequence[int], kind: Kind) -> Iterator[None]:
    """Within the block, statements also find the rows of one kind that files have of these records.

    The block cannot write. Raises RowsInFilesError.
    """
    numbers = {record >> 40 for record in records}
    months = [month for month in absent_records.list_all() if month_number(month) in numbers]

    def fill(cursor: CursorWrapper, reader: Reader) -> None:
        def pick(paths: list[Path]) -> None:
            reader.program.rows.write_text("".join(f"{record:d}\n" for record in records))
            reader.program.pick(paths, kind.record)

        _fill(cursor, reader, kind, pick)

    with _filled_tables(months, (kind,), PATIENCE, fill):
        yield


def refuse_unreadable(months: Sequence[date]) -> None:
    """Raise RowsInFilesError where `cluster_usage` would, however few records there are. Reads no rows."""
    if months:
        with absent_records.reading(months), as_month_files_error():
            shown_rows.refuse_damaged(_files(months, [NAMES, RECORDS.name, RATED.name]))
            with shown_rows.room():
                pass


def count_records(months: Collection[date]) -> int:
    """How many records, of all clusters, the files of these months have. One query."""
    files = _files_of(months).filter(kind=RECORDS.name)
    return int(files.aggregate(records=Sum("rows"))["records"] or 0)


@contextmanager
def _filled_tables(
    months: Sequence[date],
    kinds: Sequence[Kind],
    patience: int,
    fill: Callable[[CursorWrapper, Reader], None],
) -> Iterator[None]:
    if not months:
        yield
        return
    with transaction.atomic():
        with absent_records.reading(months), as_month_files_error(), connection.cursor() as cursor:
            _refuse_others(cursor)
            files = _files(months, [NAMES, *(kind.name for kind in kinds)])
            cursor.execute(sql.PREPARE)
            with shown_rows.read_files(files, patience) as reader:
                fill(cursor, reader)
            cursor.execute(sql.FILLED)
        yield
        transaction.set_rollback(True)


def _refuse_others(cursor: CursorWrapper) -> None:
    cursor.execute(sql.SCOPE)
    is_operators, on_replica, is_read_only = cursor.fetchone()
    if not is_operators:
        raise NotShownError("a tenant is in scope")
    if on_replica:
        raise PrimaryNeededError
    if is_read_only:
        raise NotShownError("no table may be made")


def _files_of(months: Collection[date]) -> Any:
    return SealedFile.objects.filter(month__in=SealedMonth.objects.dropped().filter(month__in=list(months)))


def _files(months: Collection[date], kinds: Sequence[str]) -> list[SealedFile]:
    files = _files_of(months).filter(kind__in=kinds)
    return list(files.select_related("month").order_by("month__month", "pk"))


def _fill_usage(
    cursor: CursorWrapper, reader: Reader, *, usage: UsageFilter, most: int, with_rated: bool
) -> None:
    program, files = reader.program, reader.of(RECORDS.name)
    if sum(file.rows for file in files) > most:  # else there is no need to count
        count = program.count_usage([reader.directory / file.path for file in files], usage)
        if count > most:
            raise NotShownError(f"{count} records")
    _fill(cursor, reader, RECORDS, partial(program.read_usage, usage=usage))

    def pick(paths: list[Path]) -> None:
        with program.rows.open("wb") as rows, cursor.copy(sql.NUMBERS) as copy:
            for piece in copy:
                rows.write(piece)
        program.pick(paths, RATED.record)

    if with_rated:
        _fill(cursor, reader, RATED, pick)


def _fill(cursor: CursorWrapper, reader: Reader, kind: Kind, select: Callable[[list[Path]], None]) -> None:
    """Insert the rows of a kind that `select` puts into the file of rows from a month's files.

    Those of all tenants together, since each working table costs locks.
    """
    names = reader.names()
    for month, files in groupby(reader.of(kind.name), key=lambda file: file.month.month):
        select([reader.directory / file.path for file in files])
        load.copy_in(cursor, kind, reader.program.rows)
        cursor.execute(kind.insert(into=sql.TABLES[kind.name]), {"names": names.get(month, [])})
        cursor.execute("DROP TABLE sealed_rows")
