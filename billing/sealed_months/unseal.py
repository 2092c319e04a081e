"""Loading the rows of a sealed month back, which is sealed no more then."""

from __future__ import annotations

import csv
import hashlib
from datetime import date
from pathlib import Path

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from billing.models import SealedFile, SealedMonth
from billing.sealed_months import folder, parquet
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import COPY_IN, KINDS, NAMES, Kind
from billing.sealed_months.verify import damages, digests_of_history
from portal.core.locks import Work, alone

PIECE = 1 << 20  # bytes
PARTITIONS = """
SELECT clusters_ensure_records(m.number), billing_ensure_jobs(m.number), billing_ensure_month(%(month)s),
       clusters_ensure_month(%(month)s)
FROM (SELECT month_number(extract(epoch FROM %(month)s::date)::bigint) AS number) m
"""


def unseal_month(*, month: date) -> dict[str, int]:
    """Load what the database lacks of a month, as it was sealed, and delete its files; rows by kind.

    Killed before its end, the month is still sealed, or its files are left, which the next call deletes. Raises
    SealError, as it does of a month that is not sealed and has no files, and so at a second call.
    """
    with alone(Work.SEALING) as ours:
        if not ours:
            raise SealError("busy")
        digests, loaded = digests_of_history(), dict.fromkeys((kind.name for kind in KINDS), 0)
        with transaction.atomic():
            row = SealedMonth.objects.select_for_update().filter(month=month).first()
            if row is not None:
                files = list(row.files.select_related("month").order_by("tenant", "kind"))
                digests.update(file.sha256 for file in files)
                _load(row, files, loaded)
                row.delete()
            elif not folder.exists(month):
                raise SealError("not-sealed", month=f"{month:%Y-%m}")
        folder.remove(month, digests)
        return loaded


def _load(row: SealedMonth, files: list[SealedFile], loaded: dict[str, int]) -> None:
    """Insert the rows that are missing, and count them by kind in `loaded`."""
    directory = folder.directory()
    for damage in damages(directory, files):
        raise SealError("damaged", place=damage)
    try:
        with (
            folder.scratch(row.month) as scratch,
            parquet.program(scratch) as program,
            connection.cursor() as cursor,
        ):
            cursor.execute(PARTITIONS, {"month": row.month})
            names = _names(program, directory, files)
            for kind in KINDS:
                for file in files:
                    if file.kind == kind.name:
                        program.read(directory / file.path)
                        loaded[kind.name] += _insert(cursor, kind, file, program.rows, names)
    except (OSError, parquet.ParquetError) as error:
        raise SealError("unwritable", month=f"{row}", reason=str(error)) from error


def _names(program: parquet.Program, directory: Path, files: list[SealedFile]) -> list[str]:
    for file in files:
        if file.kind == NAMES:
            program.read(directory / file.path)
            with program.rows.open(newline="", encoding="utf-8") as rows:
                return [name for _, name in csv.reader(rows)]
    return []


def _insert(cursor: CursorWrapper, kind: Kind, file: SealedFile, rows: Path, names: list[str]) -> int:
    """How many were missing. Raises SealError where rows of the file or of the table are not as sealed."""
    digest = hashlib.sha256()
    cursor.execute(kind.working_table())
    with cursor.copy(COPY_IN) as copy, rows.open("rb") as content:
        while piece := content.read(PIECE):
            copy.write(piece)
            digest.update(piece)
    cursor.execute(kind.leave_missing())
    cursor.execute(kind.insert(), {"names": names})
    count: int = cursor.rowcount
    cursor.execute(kind.differs(), {"names": names})
    (differs,) = cursor.fetchone()
    if differs or digest.hexdigest() != file.rows_sha256:
        raise SealError("loaded-differs", place=file.path)
    cursor.execute("DROP TABLE sealed_rows")
    return count
