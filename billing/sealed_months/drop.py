"""Dropping the rows of a sealed month, which stand in its files alone then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime

from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.errors import DeadlockDetected, LockNotAvailable

from billing.models import MonthProof, ProofMark, SealedFile, SealedMonth
from billing.proof import months
from billing.rating import reratings
from billing.sealed_months import load, object_storage, verify
from billing.sealed_months.errors import SealError
from billing.sealed_months.month_files import terms_of
from billing.sealed_months.readiness import PROVED_FIRST, changed_months, sql
from billing.sealed_months.rows_sql import KINDS, REVISIONS
from clusters import usage
from clusters.month_file_fetches import files_fetched_first
from portal.core.locks import Work, alone, in_turn

PATIENCE = "500ms"
"""For who reads or writes the month, at each of its tables: others wait behind us as long. PostgreSQL waits longer
before it looks for a deadlock, so that we give way and not an import."""
ATTEMPTS = 20
BATCH = 20_000  # rows
DROPPED = tuple(kind for kind in KINDS if kind is not REVISIONS)
"""Superseded revisions are few, of records of any month, and stay."""


@files_fetched_first
def drop_month(*, month: date, moment: datetime, all_processes_replaced: bool) -> SealedMonth:
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
        months.prove_due(moment=moment)
        for damage in object_storage.damages(verify.files_of(row)):
            raise SealError("damaged", place=damage)
        # A proof sees one state of the database, but not rows that are gone from under it.
        with in_turn(Work.PROVING), transaction.atomic(), connection.cursor() as cursor:
            row = SealedMonth.objects.select_for_update().get(month=month)
            proof = MonthProof.objects.get(month=month)
            terms = terms_of(proof)  # before it is asked whether all is rated on them
            if (blocker := why_not(row)) is not None:
                raise blocker
            if _compare(cursor, row) != _count(cursor, row):
                raise SealError("changed-since", month=f"{row}")
            row.unrated_periods = _unrated_periods(cursor, row)
            _empty(cursor, row)
            _refuse_changed(row, proof, terms)
            row.dropped_at, row.terms = moment, terms
            row.save(update_fields=["dropped_at", "terms", "unrated_periods"])
            if _is_backed_up(cursor):
                raise SealError("in-use", month=f"{row}")
        return row


@files_fetched_first
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
        return SealError(PROVED_FIRST)
    if changed_months([(row, within)]):
        return SealError("changed-since", month=f"{row}")
    with connection.cursor() as cursor:
        cursor.execute(sql.KEEPS, {"month": row.month})
        earlier, unsealed, pending, in_order, late = cursor.fetchone()
    if earlier:
        return SealError("earlier-first", months=earlier)
    if late:
        return SealError("late-records", months=late)
    if unsealed:
        return SealError("neighbours-first", months=unsealed)
    if pending:
        return SealError("pending")
    if in_order:
        return SealError("allowance-in-order", month=f"{row}")
    return None


def why_not_requested(row: SealedMonth) -> SealError | None:
    """The same, without what dropping itself may clear: it begins with a proof."""
    blocker = why_not(row)
    return None if blocker is not None and blocker.code == PROVED_FIRST else blocker


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
    files = verify.files_of(row)
    with load.checked(row, files) as (directory, program, names):
        for kind in DROPPED:
            for batch in _batches(file for file in files if file.kind == kind.name):
                cursor.execute(kind.working_table())
                for file in batch:
                    program.read(directory / file.path)
                    if load.copy_further(cursor, program.rows) != file.rows_sha256:
                        raise SealError("changed-since", month=f"{row}")
                    rows[kind.name] += file.rows
                if load.differs(cursor, kind, names):
                    raise SealError("changed-since", month=f"{row}")
                cursor.execute("DROP TABLE sealed_rows")
    return rows


def _batches(files: Iterable[SealedFile]) -> Iterator[list[SealedFile]]:
    """Files whose rows are compared in one statement: those of a small tenant alone would take longer to set up."""
    batch: list[SealedFile] = []
    rows = 0
    for file in files:
        batch.append(file)
        rows += file.rows
        if rows >= BATCH:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


def _count(cursor: CursorWrapper, row: SealedMonth) -> dict[str, int]:
    """How many rows the tables have of each kind. Who writes one from now on leaves a mark."""
    after, last = usage.ids_of([row.month])[row.month]
    rows = {}
    for kind in DROPPED:
        cursor.execute(
            kind.count(),
            {"month": row.month, "after": after, "last": last},
        )
        rows[kind.name] = cursor.fetchone()[0]
    return rows


def _unrated_periods(cursor: CursorWrapper, row: SealedMonth) -> list[int] | None:
    after, last = usage.ids_of([row.month])[row.month]
    cursor.execute(sql.UNRATED_PERIODS, {"month": row.month, "after": after, "last": last})
    periods: list[int] | None = cursor.fetchone()[0]
    return periods


def _empty(cursor: CursorWrapper, row: SealedMonth) -> None:
    """Nobody reads or writes the month from then on, or which months are dropped, until the transaction ends."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with transaction.atomic():
                cursor.execute(f"SET LOCAL lock_timeout = '{PATIENCE}'")
                cursor.execute("SELECT billing_drop_month(%s)", [row.month])
            return
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable | DeadlockDetected):
                raise
            if attempt == ATTEMPTS:
                raise SealError("in-use", month=f"{row}") from error


def _refuse_changed(row: SealedMonth, proof: MonthProof, terms: str) -> None:
    """Raise SealError where something of the month was changed while its files were read.

    An owner or plan that is changed from now on is rated after us, and finds other terms kept than its own.
    """
    now = MonthProof.objects.get(month=row.month)
    if (
        now.computed_at != proof.computed_at
        or ProofMark.objects.filter(month=row.month).exists()
        or reratings.count_changes()
        or terms_of(now) != terms
    ):
        raise SealError("written-to", month=f"{row}")


def _is_backed_up(cursor: CursorWrapper) -> bool:
    """Whether a dump is made, which may not have locked the tables yet: it would fail, as a later one does."""
    cursor.execute(
        "SELECT EXISTS (SELECT FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'pg_dump')"
    )
    return bool(cursor.fetchone()[0])
