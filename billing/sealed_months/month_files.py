"""What imports and rating ask of months whose rows stand in files alone: `clusters.absent_records.MonthFiles`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

from billing.models import MonthProof, SealedFile, SealedMonth
from billing.rating import rating_terms
from billing.sealed_months import late, load, parquet, shown_rows
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import NAMES, RECORDS
from billing.sealed_months.shown_rows import SCRATCH
from clusters.absent_records import FOUND, MonthFilesError, month_number

KEYS = """
COPY (
    SELECT DISTINCT s.source_key FROM usage_stage s WHERE coalesce(s.key_month, s.held_month) = %(month)s
      AND NOT EXISTS (SELECT FROM usage_late k WHERE k.source_key = s.source_key)
) TO STDOUT (FORMAT csv, FORCE_QUOTE *)
"""


class SealedMonthFiles:
    """The files of dropped months."""

    def __init__(self) -> None:
        self._reading = ExitStack()
        self._program: parquet.Program | None = None

    def hold(self, months: Collection[date]) -> Collection[date]:
        dropped = SealedMonth.objects.dropped().filter(month__in=months)
        held = [row.month for row in dropped.select_for_update().order_by("month")]
        with connection.cursor() as cursor:  # what is found in no file may be written then
            cursor.execute(
                "SELECT set_config('app.late_months', %s::int[]::text, true)",
                [[month_number(month) for month in held]],
            )
        return held

    def find(self, cursor: Any, cluster_id: int, month: date) -> None:
        row = SealedMonth.objects.get(month=month)
        files = list(row.files.select_related("month").filter(kind__in=(RECORDS.name, NAMES)))
        with as_month_files_error():
            try:
                self._find(cursor, cluster_id, month, files)
            except (OSError, parquet.ParquetError):
                self.close()  # somebody may have killed it since the last batch
                try:
                    self._find(cursor, cluster_id, month, files)
                except (OSError, parquet.ParquetError) as error:
                    self.close()
                    raise SealError("unwritable", month=f"{row}", reason=str(error)) from error

    def _find(self, cursor: Any, cluster_id: int, month: date, files: Sequence[SealedFile]) -> None:
        directory, program = load.undamaged(files), self._started()
        names = load.names_of(program, directory, files)
        for file in files:
            if file.kind == RECORDS.name:
                with (
                    program.rows.open("wb") as rows,
                    cursor.copy(KEYS, {"month": month_number(month)}) as copy,
                ):
                    for piece in copy:
                        rows.write(piece)
                program.find(directory / file.path, cluster=cluster_id)
                load.copy_in(cursor, RECORDS, program.rows)
                cursor.execute(RECORDS.insert(into=FOUND), {"names": names})
                cursor.execute(f"DROP TABLE sealed_rows; ANALYZE {FOUND} (cluster_id, source_key)")

    def _started(self) -> parquet.Program:
        if self._program is None:
            scratch = self._reading.enter_context(TemporaryDirectory(prefix=SCRATCH))
            self._program = self._reading.enter_context(parquet.program(Path(scratch)))
        return self._program

    def close(self) -> None:
        self._reading.close()
        self._program = None

    def load(self, month: date) -> None:
        """Nothing is left to do where somebody has unsealed it, or loaded it back, while this waited for it."""
        row = SealedMonth.objects.dropped().select_for_update().filter(month=month).first()
        if row is not None:
            with as_month_files_error():
                load.load(row)

    def load_records(self, month: date, keys: Sequence[str]) -> None:
        with as_month_files_error():
            row = SealedMonth.objects.get(month=month)
            if terms_of(MonthProof.objects.get(month=month)) == row.terms:
                late.load_records(row, keys)
            else:  # all of it is to be rated again: then what the proof has of single records is told differently
                load.load(row)

    def load_changed(self, account_ids: Sequence[int]) -> None:
        accounts = set(account_ids)
        for row in SealedMonth.objects.dropped().order_by("month"):
            proof = MonthProof.objects.get(month=row.month)
            if accounts & set(proof.accounts) and terms_of(proof) != row.terms:
                self._load_now(row.month)

    def show(self, months: Collection[date], *, most: int | None, with_hours: bool = False) -> None:
        with as_month_files_error():
            shown_rows.show(months, most=most, with_hours=with_hours)

    def show_records(self, months: Sequence[date], records: Sequence[int]) -> None:
        with as_month_files_error():
            shown_rows.show_records(months, records)

    def show_record(self, month: date, record: int, part: tuple[str, str] | None) -> None:
        with as_month_files_error():
            shown_rows.show_records([month], [record], with_parts=True, part=part, with_hours=True)

    def show_numbered(self, months: Sequence[date], number: str, *, among: int, most: int) -> list[date]:
        with as_month_files_error():
            return shown_rows.show_numbered(months, number, among=among, most=most)

    def write_usage(
        self, months: Collection[date], rows: IO[bytes], *, since: int, until: int, most: int | None
    ) -> None:
        with as_month_files_error():
            shown_rows.write_usage(months, rows, since=since, until=until, most=most)

    def refuse_unreadable(self, months: Collection[date]) -> None:
        with as_month_files_error():
            shown_rows.refuse_unreadable(months)

    def _load_now(self, month: date) -> None:
        """An import that holds the month waits for tenants, which rating holds: rating gives way, and comes again."""
        try:
            with transaction.atomic():
                SealedMonth.objects.select_for_update(nowait=True).filter(month=month).first()
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
            raise MonthFilesError(f"{month:%Y-%m} is being loaded back by somebody else.") from error
        self.load(month)


def terms_of(proof: MonthProof) -> str:
    """What the usage of a month is rated on now."""
    if proof.first_second is None or proof.last_second is None:
        return ""
    return rating_terms.digest(proof.accounts, since=proof.first_second, until=proof.last_second)


@contextmanager
def as_month_files_error() -> Iterator[None]:
    try:
        yield
    except SealError as error:
        raise MonthFilesError(str(error)) from error
