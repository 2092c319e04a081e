"""Dropping the rows of a sealed month, which stand in its files alone then."""

from __future__ import annotations

from datetime import date, datetime

from django.db import DataError, OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.errors import LockNotAvailable

from billing.models import MonthProof, ProofMark, SealedMonth
from billing.proof import checks
from billing.rating import reratings
from billing.sealed_months import load
from billing.sealed_months.archive import terms_of
from billing.sealed_months.errors import SealError
from billing.sealed_months.readiness import is_changed, sql
from billing.sealed_months.rows_sql import KINDS
from clusters import usage
from portal.core.locks import Work, alone, in_turn

PATIENCE = "10s"  # for who reads or writes the month; nobody else waits longer behind us
DROPPED = tuple(kind for kind in KINDS if kind.name != "revisions")
"""Superseded revisions are few, of records of any month, and stay."""


def drop_month(*, month: date, moment: datetime, all_processes_replaced: bool = True) -> SealedMonth:
    """Empty the tables of a sealed month, once each of its files is read and each row compared with the table's.

    Records, jobs and rated usage go in the transaction that says so. Killed anywhere, the month is dropped or not.
    Asked again, the same. Raises SealError; nothing was changed then. `all_processes_replaced`: somebody has seen to it
    that no program runs any more which knows no such months.
    """
    with alone(Work.SEALING) as ours:
        if not ours:
            raise SealError("busy")
        if (row := _sealed(month)).dropped_at is not None:
            return row
        if not all_processes_replaced and is_first():
            raise SealError("old-processes")
        checks.prove(moment=moment)
        try:
            # A proof sees one state of the database, but not rows that are gone from under it.
            with in_turn(Work.PROVING), transaction.atomic(), connection.cursor() as cursor:
                row = SealedMonth.objects.select_for_update().get(month=month)
                if (blocker := why_not(row)) is not None:
                    raise blocker
                proof = MonthProof.objects.get(month=month)
                rows = _compare(cursor, row)
                row.terms = terms_of(proof)
                _empty(cursor, row, rows)
                now = MonthProof.objects.get(month=month)
                if now.computed_at != proof.computed_at or ProofMark.objects.filter(month=month).exists():
                    raise SealError("written-to", month=f"{row}")
                row.dropped_at = moment
                row.save(update_fields=["dropped_at", "terms"])
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
            raise SealError("in-use", month=f"{month:%Y-%m}") from error
        return row


def load_back(*, month: date) -> dict[str, int]:
    """Load the rows of a dropped month into its tables again; rows by kind. It stays sealed, and its files stay.

    Raises SealError. Asked again, nothing is missing.
    """
    with transaction.atomic():
        _sealed(month)
        row = SealedMonth.objects.select_for_update().get(month=month)
        return load.load(row)


def why_not(row: SealedMonth) -> SealError | None:
    """Why a sealed month cannot be dropped now; None where it can, as far as is known without reading its rows."""
    within = usage.ids_of([row.month])[row.month]
    if reratings.count_changes() or ProofMark.objects.filter(month=row.month).exists():
        return SealError("not-proved")
    if is_changed(row, within):
        return SealError("changed-since", month=f"{row}")
    with connection.cursor() as cursor:
        cursor.execute(sql.KEEPS, {"month": row.month})
        earlier, unsealed, pending, in_order = cursor.fetchone()
    if earlier:
        return SealError("earlier-first", months=earlier)
    if unsealed:
        return SealError("neighbours-first", months=unsealed)
    if pending:
        return SealError("pending")
    if in_order:
        return SealError("allowance-in-order", month=f"{row}")
    return None


def is_first() -> bool:
    """Whether no month was ever dropped: programs of release 1.0.0 may still run. After it none of them starts."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT programs_from < 2 FROM schema_level")
        return bool(cursor.fetchone()[0])


def _sealed(month: date) -> SealedMonth:
    row = SealedMonth.objects.filter(month=month).first()
    if row is None:
        raise SealError("not-sealed", month=f"{month:%Y-%m}")
    return row


def _compare(cursor: CursorWrapper, row: SealedMonth) -> dict[str, int]:
    """How many rows each kind has, once every row in the files is in its table, value by value."""
    rows = dict.fromkeys((kind.name for kind in DROPPED), 0)
    files = load.files_of(row)
    with load.checked(row, files) as (directory, program, names):
        for kind in DROPPED:
            for file in files:
                if file.kind == kind.name:
                    program.read(directory / file.path)
                    digest = load.copy_in(cursor, kind, program.rows)
                    if digest != file.rows_sha256 or load.differs(cursor, kind, names):
                        raise SealError("changed-since", month=f"{row}")
                    cursor.execute("DROP TABLE sealed_rows")
                    rows[kind.name] += file.rows
    return rows


def _empty(cursor: CursorWrapper, row: SealedMonth, rows: dict[str, int]) -> None:
    cursor.execute(f"SET LOCAL lock_timeout = '{PATIENCE}'")
    try:
        cursor.execute(
            "SELECT billing_drop_month(%s, %s, %s, %s)",
            [row.month, rows["records"], rows["jobs"], rows["rated"]],
        )
    except DataError as error:  # other rows are in the tables than in the files
        raise SealError("changed-since", month=f"{row}") from error
