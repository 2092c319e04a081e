"""What imports and rating ask of months whose rows stand in files alone: `clusters.absent_records.MonthFiles`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from django.db import OperationalError, transaction
from psycopg.errors import LockNotAvailable

from billing.models import MonthProof, SealedMonth
from billing.rating import rating_terms
from billing.sealed_months import load, verify
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import KINDS, NAMES
from clusters.absent_records import FOUND, MonthFilesError, month_number

RECORDS = KINDS[0]
KEYS = """
COPY (SELECT DISTINCT source_key FROM usage_stage WHERE coalesce(key_month, held_month) = %(month)s)
TO STDOUT (FORMAT csv, FORCE_QUOTE *)
"""


class SealedMonthFiles:
    """The files of dropped months."""

    def hold(self, months: Collection[date]) -> Collection[date]:
        dropped = SealedMonth.objects.dropped().filter(month__in=months)
        return [row.month for row in dropped.select_for_update().order_by("month")]

    def find(self, cursor: Any, cluster_id: int, month: date) -> None:
        with _as_month_files_error():
            row = SealedMonth.objects.get(month=month)
            files = [file for file in verify.files_of(row) if file.kind in (RECORDS.name, NAMES)]
            with load.checked(row, files) as (directory, program, names):
                with (
                    program.rows.open("wb") as rows,
                    cursor.copy(KEYS, {"month": month_number(month)}) as copy,
                ):
                    for piece in copy:
                        rows.write(piece)
                for file in files:
                    if file.kind == RECORDS.name:
                        program.find(directory / file.path, cluster=cluster_id)
                        load.copy_in(cursor, RECORDS, program.rows)
                        cursor.execute(RECORDS.insert(into=FOUND), {"names": names})
                        cursor.execute(f"DROP TABLE sealed_rows; ANALYZE {FOUND} (cluster_id, source_key)")

    def load(self, month: date) -> None:
        """Nothing is left to do where somebody has unsealed it, or loaded it back, while this waited for it."""
        row = SealedMonth.objects.dropped().select_for_update().filter(month=month).first()
        if row is not None:
            with _as_month_files_error():
                load.load(row)

    def load_changed(self, account_ids: Sequence[int]) -> None:
        accounts = set(account_ids)
        for row in SealedMonth.objects.dropped().order_by("month"):
            proof = MonthProof.objects.get(month=row.month)
            if accounts & set(proof.accounts) and terms_of(proof) != row.terms:
                self._load_now(row.month)

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
def _as_month_files_error() -> Iterator[None]:
    try:
        yield
    except SealError as error:
        raise MonthFilesError(str(error)) from error
