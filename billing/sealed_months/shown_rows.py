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
from billing.sealed_months.rows_sql import JOBS, NAMES, RATED, RECORDS
from clusters import usage
from clusters.absent_records import MOST, NotShownError
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
        files = _files(cursor, months, None)
    refuse_damaged(files)
    with room():
        pass


def show(months: Collection[date], *, most: int | None) -> None:
    """Have the tenant's rows of months beside those of the tables, of `most` jobs.

    Raises NotShownError, and SealError for a file that is missing, cut or changed.
    """
    with connection.cursor() as cursor:
        left = sorted(set(months) - _shown(cursor))
        if left and (files := _files(cursor, left, most)):
            with _prepared(cursor), read_files(files, PATIENCE if most else LONGEST) as reader:
                for file in reader.of(JOBS.name):
                    reader.jobs(cursor, file)
                spans = _spans(left)
                for file in reader.of(RATED.name):
                    for after, last in spans:
                        reader.rated(cursor, file, within=("record_id", after, last))
                reader.runs(cursor)
                cursor.execute(sql.DONE, {"months": left})


def _spans(months: Collection[date]) -> list[tuple[int, int]]:
    """The numbers (after, last] of these months' records; months side by side are one, which is read once."""
    spans: list[tuple[int, int]] = []
    for after, last in sorted(usage.ids_of(months).values()):
        if spans and spans[-1][1] >= after:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((after, last))
    return spans


def show_records(month: date, records: Sequence[int], *, with_parts: bool = False) -> None:
    """The same of some records, as far as they are the tenant's; with the other parts of a first one's job."""
    with connection.cursor() as cursor:
        if month in _shown(cursor) or not (files := _files(cursor, [month], None)):
            return
        with _prepared(cursor), read_files(files, PATIENCE) as reader:
            for file in reader.of(JOBS.name):
                reader.jobs(cursor, file, among=records)
                if with_parts and (part := _part_of(cursor, records[0])):
                    reader.jobs(cursor, file, beginning=("job_id", part[0]), equal=("name", part[1]))
            for file in reader.of(RATED.name):
                reader.rated(cursor, file)
            reader.runs(cursor)
            cursor.execute(sql.DONE, {"months": []})


def show_numbered(months: Sequence[date], number: str, *, among: int, most: int) -> list[date]:
    """Show the `most` newest jobs of that number in the months, with tasks and steps of it, but not what they used.

    Returns the months that were looked at: one after another, as far as the tenant has `among` jobs in them.
    """
    with connection.cursor() as cursor:
        files = {file.month.month: file for file in _files(cursor, months, None) if file.kind == JOBS.name}
        looked_at = []
        for month in months:
            among -= files[month].rows if month in files else 0
            if among < 0:
                break
            looked_at.append(month)
        if _Scope.of(cursor).role == MEMBER:
            most = MOST * len(looked_at)  # jobs of others are left out once they are read
        if chosen := [files[month] for month in looked_at if month in files]:
            with _prepared(cursor), read_files(chosen, PATIENCE) as reader:
                reader.numbered(cursor, chosen, number, most=most)
                cursor.execute(sql.DONE, {"months": []})
    return looked_at


def write_usage(
    months: Collection[date], rows: IO[bytes], *, since: int, until: int, most: int | None
) -> None:
    """Write the tenant's records of the months that held something in [since, until), epoch seconds, into a file.

    As the working table `usage_input` has them. Nothing of them stays shown. Raises as `show` does.
    """
    with connection.cursor() as cursor:
        _Scope.of(cursor).refuse_other()
        files = [file for file in _files(cursor, months, most) if file.kind != RATED.name]
        if files:
            with _prepared(cursor), read_files(files, PATIENCE if most else LONGEST) as reader:
                for file in reader.of(JOBS.name):
                    reader.jobs(cursor, file)
                reader.runs(cursor)
                cursor.execute(sql.COUNTED)
                values = {"since": since, "until": until, "months": list(months)}
                with cursor.copy(sql.USAGE, values) as copy:
                    for piece in copy:
                        rows.write(piece)
                transaction.set_rollback(True)


def show_hours() -> None:
    """Have the hours of telemetry of the runs that are shown beside those of the tables; again, those that are new.

    They are in no file: they stay in their table, which tenants' pages may not read. So one statement reads it as an
    operator, of runs that came from the tenant's own files, and of hours in which their accounts were the tenant's.
    """
    with connection.cursor() as cursor:
        scope = _Scope.of(cursor)
        if scope.owner:
            with transaction.atomic():
                _at_once(cursor, sql.HOURS, sql.FILL_HOURS, values={"role": scope.role})


@dataclass(frozen=True, slots=True)
class Reader:
    """Files of the tenant's, and the program that reads them."""

    files: Sequence[SealedFile]
    directory: Path
    program: parquet.Program
    names: Mapping[date, list[str]]  # of each month

    def of(self, kind: str) -> list[SealedFile]:
        return [file for file in self.files if file.kind == kind]

    def jobs(
        self, cursor: CursorWrapper, file: SealedFile, *, among: Sequence[int] = (), **chosen: Any
    ) -> None:
        """Show the jobs of a file: those `among` these records, or `chosen` as `parquet.Program.read` takes it."""
        if among:
            self.program.rows.write_text("".join(f"{record:d}\n" for record in among))
            self.program.pick([self.directory / file.path], "record_id")
        else:
            self.program.read(self.directory / file.path, **chosen)
        self._insert_jobs(cursor, self.names.get(file.month.month, []))

    def numbered(self, cursor: CursorWrapper, files: list[SealedFile], number: str, *, most: int) -> None:
        """Show the newest jobs of files that have that number, or are tasks or steps of it."""
        self.program.numbered([self.directory / file.path for file in files], number, most=most)
        self._insert_jobs(cursor, [])

    def _insert_jobs(self, cursor: CursorWrapper, names: list[str]) -> None:
        load.copy_in(cursor, JOBS, self.program.rows)
        # Those that came before and are no longer shown, since somebody loaded their month back, are here all the same.
        insert = f"{JOBS.insert(into='shown_job', users=USERS)} ON CONFLICT DO NOTHING"
        _at_once(cursor, sql.KEEP_OWN, insert, sql.EMPTIED, values={"names": names})

    def rated(self, cursor: CursorWrapper, file: SealedFile, **chosen: Any) -> None:
        """Show what was rated, `chosen` as `parquet.Program.read` takes it, or of the jobs that have come."""
        if chosen:
            self.program.read(self.directory / file.path, **chosen)
        else:
            self._pick(cursor, file, "record_id")
        load.copy_in(cursor, RATED, self.program.rows)
        _at_once(cursor, sql.KEEP_RATED, RATED.insert(into="shown_rated"), sql.EMPTIED)

    def runs(self, cursor: CursorWrapper) -> None:
        """Show the runs that the jobs are which have come."""
        for file in self.of(RECORDS.name):
            self._pick(cursor, file, "id")
            load.copy_in(cursor, RECORDS, self.program.rows)
            _at_once(cursor, sql.RUNS, sql.EMPTIED)

    def _pick(self, cursor: CursorWrapper, file: SealedFile, column: str) -> None:
        """Put the rows of a file into the file of rows that are of jobs which have come."""
        with self.program.rows.open("wb") as rows, cursor.copy(sql.RECORDS) as copy:
            for piece in copy:
                rows.write(piece)
        self.program.pick([self.directory / file.path], column)


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
            names = {
                file.month.month: load.names_of(program, directory, [file])
                for file in files
                if file.kind == NAMES
            }
            yield Reader(files, directory, program, names)
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
def _prepared(cursor: CursorWrapper) -> Iterator[None]:
    """With the tables to show rows in; all or nothing of what is shown in the block stays."""
    scope = _Scope.of(cursor)
    scope.refuse_other()
    with transaction.atomic():
        if not scope.owner:
            _at_once(cursor, sql.PREPARE, *([sql.ELSEWHERE] if scope.role == MEMBER else []))
        yield


def _at_once(cursor: CursorWrapper, *statements: str, values: Mapping[str, Any] | None = None) -> None:
    """In one round trip: pages show rows before they ask anything."""
    cursor.execute(";".join(statements), values)


def _part_of(cursor: CursorWrapper, record: int) -> tuple[str, str] | None:
    """How numbers of the other parts of a shown job begin, and their name; None where it has none."""
    cursor.execute(sql.PART_OF, {"record": record})
    row: tuple[str, str] | None = cursor.fetchone()
    return row


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

    def refuse_other(self) -> None:
        """Raise NotShownError where no rows can be shown, and PrimaryNeededError on a replica."""
        if not self.is_tenants or not connection.in_atomic_block:
            raise NotShownError("no tenant is in scope")
        if self.on_replica:
            raise PrimaryNeededError
        if self.is_read_only or self.owner not in {None, self.role}:
            raise NotShownError("no table may be made")


def _shown(cursor: CursorWrapper) -> set[date]:
    """Months that the transaction shows of the scope. Raises NotShownError where that is no tenant's: of nobody's rows
    nothing would be found.
    """
    scope = _Scope.of(cursor)
    if not scope.is_tenants:
        raise NotShownError("no tenant is in scope")
    if not scope.owner:
        return set()
    cursor.execute(sql.SHOWN)
    return {month for (month,) in cursor.fetchall()}


def _files(cursor: CursorWrapper, months: Collection[date], most: int | None) -> list[SealedFile]:
    """What has the tenant's rows of these months, as the database says."""
    cursor.execute(sql.FILES, {"months": list(months)})
    files = [
        SealedFile(
            month=SealedMonth(month=month), tenant_id=tenant, kind=kind, bytes=size, rows=rows, sha256=digest
        )
        for month, tenant, kind, size, rows, digest in cursor.fetchall()
    ]
    jobs = sum(file.rows for file in files if file.kind == JOBS.name)
    if most is not None and jobs > most:
        raise NotShownError(f"{jobs} jobs")
    is_own = any(file.tenant_id is not None for file in files)
    return files if is_own else []  # else the other files have nothing of the tenant either
