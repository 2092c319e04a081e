"""Loading sealed rows back: a whole month, which is sealed no more then, or one record."""

from __future__ import annotations

import csv
import hashlib
from datetime import date
from pathlib import Path

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from billing.models import SealedFile, SealedMonth
from billing.rules.period import shifted
from billing.sealed_months import folder, parquet
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import COPY_IN, KINDS, NAMES, Kind
from billing.sealed_months.verify import damages
from billing.sealed_months.writer import copied_rows, month_values
from clusters import usage
from portal.core.locks import Work, alone

PIECE = 1 << 20  # bytes
PARTITIONS = """
SELECT clusters_ensure_records(m.number), billing_ensure_jobs(m.number), billing_ensure_month(%(month)s),
       clusters_ensure_month(%(month)s)
FROM (SELECT month_number(extract(epoch FROM %(month)s::date)::bigint) AS number) m
"""


def unseal_month(*, month: date) -> dict[str, int]:
    """Load what the database lacks of a month, compare it with what was sealed, and delete its files; rows by kind.

    Killed before its end, the month is still sealed, or its files are left, which the next call deletes. Raises
    SealError, as it does of a month that is not sealed, and so at a second call.
    """
    with alone(Work.SEALING) as ours:
        if not ours:
            raise SealError("busy")
        if not SealedMonth.objects.filter(month=month).exists():
            folder.remove(month)
        with transaction.atomic():
            row = _sealed(month)
            loaded = _load(row)
            row.delete()
        folder.remove(month)
        return loaded


@transaction.atomic
def load_record(*, record: int) -> dict[str, int]:
    """Load what the database lacks of one record from its sealed month, which stays sealed; rows by kind.

    Its superseded revisions and rated usage are those of that month. Asked again, nothing is left to load.
    """
    return _load(_sealed(month_of(record)), record=record)


def month_of(record: int) -> date:
    """The UTC month that a record's number says."""
    return date(*shifted((1970, 1), record >> 40), 1)


def _sealed(month: date) -> SealedMonth:
    row = SealedMonth.objects.select_for_update().filter(month=month).first()
    if row is None:
        raise SealError("not-sealed", month=f"{month:%Y-%m}")
    return row


def _load(row: SealedMonth, *, record: int = 0) -> dict[str, int]:
    """Rows that were missing and are there again, by kind."""
    directory, files = folder.directory(), list(row.files.select_related("month").order_by("tenant", "kind"))
    for damage in damages(directory, files):
        raise SealError("damaged", place=damage)
    loaded = dict.fromkeys((kind.name for kind in KINDS), 0)
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
                        key = kind.record if record else ""
                        program.read(directory / file.path, key=key, record=record)
                        loaded[kind.name] += _insert(cursor, kind, program.rows, names)
            if any(loaded.values()) and not record:
                _compare(cursor, row, files, names)
    except (OSError, parquet.ParquetError) as error:
        raise SealError("unwritable", month=f"{row}", reason=str(error)) from error
    return loaded


def _names(program: parquet.Program, directory: Path, files: list[SealedFile]) -> list[str]:
    for file in files:
        if file.kind == NAMES:
            program.read(directory / file.path)
            with program.rows.open(newline="", encoding="utf-8") as rows:
                return [name for _, name in csv.reader(rows)]
    return []


def _insert(cursor: CursorWrapper, kind: Kind, rows: Path, names: list[str]) -> int:
    cursor.execute(kind.working_table())
    with cursor.copy(COPY_IN) as copy, rows.open("rb") as content:
        while piece := content.read(PIECE):
            copy.write(piece)
    cursor.execute(kind.insert(), {"names": names})
    count: int = cursor.rowcount
    cursor.execute("DROP TABLE sealed_rows")
    return count


def _compare(cursor: CursorWrapper, row: SealedMonth, files: list[SealedFile], names: list[str]) -> None:
    """Raises SealError where the rows of the month are not those that were sealed."""
    (within,) = usage.ids_of([row.month]).values()
    digests = {(file.kind, file.tenant_id): file.rows_sha256 for file in files if file.kind != NAMES}
    for kind in KINDS:
        for tenant, rows in copied_rows(cursor, kind, month_values(row, within, names)):
            digest = hashlib.sha256()
            for line in rows:
                digest.update(line)
            if digest.hexdigest() != digests.pop((kind.name, tenant), ""):
                raise SealError("loaded-differs", place=f"{row} {kind.name}")
    for kind_name, _ in digests:
        raise SealError("loaded-differs", place=f"{row} {kind_name}")
