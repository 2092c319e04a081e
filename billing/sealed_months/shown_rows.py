"""The door that a tenant's pages, files and API read dropped months through.

Rows of the tenant in whose scope a transaction is, and of nobody else, are read by DuckDB, and stand beside those of
the tables until it ends: statements that name jobs, rated usage and runs see both. The tenant is that of the scope,
never one that a caller names. Elsewhere there is none to read for, and months stay in their files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import IO, Any, NamedTuple

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from billing.models import SealedFile, SealedMonth
from billing.sealed_months import folder, load, parquet, verify
from billing.sealed_months import shown_rows_sql as sql
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import JOBS, NAMES, RATED, SHOWN_COLUMNS, SHOWN_TABLE
from clusters.absent_records import MOST, NotShownError, month_number
from portal.core.replica import PrimaryNeededError

USERS = "billing_own_job_users()"
_ONE_AT_A_TIME = Lock()
"""Of a process: what reads a file takes up to 256 MiB while it does."""
_WAITING = BoundedSemaphore(3)
PATIENCE = 20  # seconds that a page waits for its turn
LONGEST = 600  # the same of a file, which has begun to be sent
SCRATCH = "clustertab-rows-"
MEMBER = "clustertab_member"


def refuse_unreadable(months: Collection[date]) -> None:
    """Raise what `show` of any number of jobs would, as for a file that is not as it was sealed. Reads no row."""
    with connection.cursor() as cursor:
        _Scope.of(cursor).refuse_other()
        cursor.execute(sql.FILES, {"months": list(months)})
        files = _files(cursor, None)
    refuse_damaged(files)
    with room():
        pass


def show(months: Collection[date], *, most: int | None, with_hours: bool = False) -> None:
    """Have the tenant's rows of months beside those of the tables, of `most` jobs; and hours of telemetry.

    Raises NotShownError, and SealError for a file that is missing, cut or changed. However many months and files there
    are, it asks four times, or five where rows are shown already; more of more than MOST jobs.
    """
    with connection.cursor() as cursor:
        scope = _Scope.of(cursor)
        left = sorted(set(months) - _shown(cursor, scope))
        with _prepared(cursor, scope, left, most) as files:
            if files:
                with read_files(files, PATIENCE if most else LONGEST) as reader:
                    reader.read(cursor, rated=_spans(left))
                _insert(cursor, scope, left, with_hours=with_hours)
        if with_hours and not files:
            _add_hours(cursor, scope)


def _add_hours(cursor: CursorWrapper, scope: _Scope) -> None:
    """Show hours of what is shown already."""
    if scope.owner and scope.is_writable:
        with transaction.atomic():
            _at_once(cursor, sql.HOURS, sql.FILL_HOURS, values={"role": scope.role})


def _spans(months: Sequence[date]) -> list[tuple[int, int]]:
    """The numbers (after, last] of these months' records; months side by side are one range."""
    spans: list[tuple[int, int]] = []
    for number in map(month_number, months):
        after, last = (number << 40) - 1, (number + 1 << 40) - 1
        if spans and spans[-1][1] >= after:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((after, last))
    return spans


def show_records(
    months: Collection[date],
    records: Sequence[int],
    *,
    with_parts: bool = False,
    part: tuple[str, str] | None = None,
    with_hours: bool = False,
) -> None:
    """The same of some records of the months, as far as they are the tenant's; also other parts of a first one's job.

    `part` has the namespace and the name of that job, where the record's file may not tell.
    """
    with connection.cursor() as cursor:
        scope = _Scope.of(cursor)
        left = sorted(set(months) - _shown(cursor, scope))
        with _prepared(cursor, scope, left, None) as files:
            if files:
                with read_files(files, PATIENCE) as reader:
                    reader.read(cursor, is_few=True, records=list(records), part=part, with_parts=with_parts)
                _insert(cursor, scope, [], with_hours=with_hours)
        if with_hours and not files:
            _add_hours(cursor, scope)


def show_numbered(months: Sequence[date], number: str, *, among: int, most: int) -> list[date]:
    """Show the `most` newest jobs of that number in the months, with tasks and steps of it, but not what they used.

    Returns the months that were looked at: one after another, as far as the tenant has `among` jobs in them.
    """
    with connection.cursor() as cursor:
        scope, looked_at = _Scope.of(cursor), list[date]()
        with _prepared(cursor, scope, months, None) as own:
            files = {file.month.month: file for file in own if file.kind == JOBS.name}
            for month in months:
                among -= files[month].rows if month in files else 0
                if among < 0:
                    break
                looked_at.append(month)
            if scope.role == MEMBER:
                most = MOST * len(looked_at)  # jobs of others are left out once they are read
            if chosen := [files[month] for month in looked_at if month in files]:
                with read_files(chosen, PATIENCE) as reader:
                    reader.read(cursor, is_few=True, number=number, most=most)
                _insert(cursor, scope, [])
            elif own:
                transaction.set_rollback(True)  # of the working table
    return looked_at


def write_usage(
    months: Collection[date], rows: IO[bytes], *, since: int, until: int, most: int | None
) -> None:
    """Write the tenant's records of the months that held something in [since, until), epoch seconds, into a file.

    As the working table `usage_input` has them. Nothing of them stays shown. Raises as `show` does.
    """
    with connection.cursor() as cursor:
        scope = _Scope.of(cursor)
        scope.refuse_other()
        cursor.execute(sql.FILES, {"months": list(months)})
        if not _files(cursor, most):
            return  # without tables: what a plan would have come to goes through all tenants
        with _prepared(cursor, scope, months, most) as own:
            if files := [file for file in own if file.kind != RATED.name]:
                with read_files(files, PATIENCE if most else LONGEST) as reader:
                    reader.read(cursor)
                    _insert(cursor, scope, [])
                    values = {"since": since, "until": until, "months": list(months)}
                    with cursor.copy(sql.USAGE, values) as copy:
                        for piece in copy:
                            rows.write(piece)
                transaction.set_rollback(True)


@dataclass(frozen=True, slots=True)
class Reader:
    """Files, and the program that reads them."""

    files: Sequence[SealedFile]
    directory: Path
    program: parquet.Program

    def of(self, kind: str) -> list[SealedFile]:
        return [file for file in self.files if file.kind == kind]

    def names(self) -> dict[date, list[str]]:
        """By month what numbers below zero stand for in its rows."""
        return {
            file.month.month: load.names_of(self.program, self.directory, [file]) for file in self.of(NAMES)
        }

    def read(self, cursor: CursorWrapper, *, is_few: bool = False, **chosen: Any) -> None:
        """Put jobs of all files, their runs and what was rated of them into the working table.

        By one copy where they are few, as a page's are; else only those of one month and kind are in `/tmp` at a time.
        `chosen` as `parquet.Program.read_jobs` takes it.
        """
        months = sorted({file.month.month for file in self.files})
        shares: list[tuple[Collection[str], Collection[date]]] = [(SHOWN_COLUMNS.keys(), months)]
        if not is_few and sum(file.rows for file in self.of(JOBS.name)) > MOST:
            shares = [([kind], [month]) for month in months for kind in SHOWN_COLUMNS]
        for kinds, some in shares:
            paths = {
                kind: [self.directory / file.path for file in self.of(kind) if file.month.month in some]
                for kind in SHOWN_COLUMNS
            }
            if columns := {kind: SHOWN_COLUMNS[kind] for kind in kinds if paths[kind]}:
                self.program.read_jobs(paths, columns, **chosen)
                load.copy_further(cursor, self.program.rows)


@contextmanager
def read_files(files: Sequence[SealedFile], patience: int) -> Iterator[Reader]:
    """Has the program read these, in its turn. Raises SealError for one that is not as it was sealed."""
    directory = folder.directory()
    try:
        with (
            _turn(patience),
            tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch,
            parquet.program(Path(scratch)) as program,
        ):
            refuse_damaged(files)
            yield Reader(files, directory, program)
    except (OSError, parquet.ParquetError) as error:
        months = ", ".join(sorted({f"{file.month}" for file in files}))
        raise SealError("unwritable", month=months, reason=str(error)) from error


@contextmanager
def _turn(patience: int) -> Iterator[None]:
    """One reads at a time, and few pages wait for it: who waits keeps a thread and a connection of all others."""
    with room(patience if patience == LONGEST else 0):
        if not _ONE_AT_A_TIME.acquire(timeout=patience):
            raise SealError("many-readers")
    try:
        yield
    finally:
        _ONE_AT_A_TIME.release()


@contextmanager
def room(patience: int = 0) -> Iterator[None]:
    if not _WAITING.acquire(timeout=patience):
        raise SealError("many-readers")
    try:
        yield
    finally:
        _WAITING.release()


def refuse_damaged(files: Collection[SealedFile]) -> None:
    for damage in verify.damages(folder.directory(), files):
        raise SealError("damaged", place=damage)


@contextmanager
def _prepared(
    cursor: CursorWrapper, scope: _Scope, months: Collection[date], most: int | None
) -> Iterator[list[SealedFile]]:
    """The tenant's files of months, with the tables to show their rows in; all or nothing of what is shown in the block
    stays. There are no tables where there are no files.
    """
    if not months:
        yield []
        return
    values = {"months": list(months)}
    if not scope.is_writable:
        cursor.execute(sql.FILES, values)
        if _files(cursor, most):
            scope.refuse_other()
        yield []
        return
    tables = [SHOWN_TABLE] if scope.owner else [sql.PREPARE, SHOWN_TABLE]
    if scope.role == MEMBER and not scope.owner:
        tables.insert(1, sql.ELSEWHERE)
    with transaction.atomic():
        _at_once(cursor, *tables, sql.FILES, values=values)
        while cursor.nextset():  # to the answer of the last
            pass
        files = _files(cursor, most)
        yield files
        if not files:
            transaction.set_rollback(True)


def _insert(
    cursor: CursorWrapper, scope: _Scope, months: Sequence[date], *, with_hours: bool = False
) -> None:
    """Show what stands in the working table, as far as it is the tenant's: of `months` that is all they have."""
    # Those that came before and are no longer shown, since somebody loaded their month back, are here all the same.
    jobs = f"{JOBS.insert(into='shown_job', users=USERS, of_kind=True)} ON CONFLICT DO NOTHING"
    rated = RATED.insert(into="shown_rated", of_kind=True)
    hours = [sql.HOURS, sql.FILL_HOURS] if with_hours else []
    _at_once(
        cursor,
        *(sql.KEEP_OWN, jobs, sql.COUNTED, sql.KEEP_RATED, rated, sql.RUNS, sql.EMPTIED, sql.DONE, *hours),
        values={"names": [], "months": list(months), "role": scope.role},
    )


def _at_once(cursor: CursorWrapper, *statements: str, values: Mapping[str, Any] | None = None) -> None:
    """In one round trip: pages show rows before they ask anything."""
    cursor.execute(";".join(statements), values)


class _Scope(NamedTuple):
    """In what a transaction reads."""

    is_tenants: bool  # whose pages read
    on_replica: bool
    is_read_only: bool
    owner: str | None  # the role that made the tables to show rows in
    role: str

    @classmethod
    def of(cls, cursor: CursorWrapper) -> _Scope:
        cursor.execute(sql.SCOPE)
        return cls(*cursor.fetchone())

    @property
    def is_writable(self) -> bool:
        """Whether tables may be made to show a tenant's rows in."""
        return (
            self.is_tenants
            and connection.in_atomic_block
            and not self.on_replica
            and not self.is_read_only
            and self.owner in {None, self.role}
        )

    def refuse_other(self) -> None:
        """Raise NotShownError where no rows can be shown, and PrimaryNeededError on a replica."""
        if not self.is_tenants or not connection.in_atomic_block:
            raise NotShownError("no tenant is in scope")
        if self.on_replica:
            raise PrimaryNeededError
        if not self.is_writable:
            raise NotShownError("no table may be made")


def _shown(cursor: CursorWrapper, scope: _Scope) -> set[date]:
    """Months that the transaction shows of the scope. Raises NotShownError where that is no tenant's: of nobody's rows
    nothing would be found.
    """
    if not scope.is_tenants:
        raise NotShownError("no tenant is in scope")
    if not scope.owner:
        return set()
    cursor.execute(sql.SHOWN)
    return {month for (month,) in cursor.fetchall()}


def _files(cursor: CursorWrapper, most: int | None) -> list[SealedFile]:
    """What has the tenant's rows of some months, as the database answers. Raises NotShownError for more jobs."""
    files = [
        SealedFile(
            month=SealedMonth(month=month), tenant_id=tenant, kind=kind, bytes=size, rows=rows, sha256=digest
        )
        for month, tenant, kind, size, rows, digest in cursor.fetchall()
        if kind in SHOWN_COLUMNS
    ]
    jobs = sum(file.rows for file in files if file.kind == JOBS.name)
    if most is not None and jobs > most:
        raise NotShownError(f"{jobs} jobs")
    is_own = any(file.tenant_id is not None for file in files)
    return files if is_own else []  # else the other files have nothing of the tenant either
