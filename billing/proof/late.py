"""The proof of dropped months of which some records came back: late ones, in their tables.

What is kept with such a month is of the records in its files alone; it shrinks as one of them comes back. The late ones
are few, and recomputed each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

from django.db.backends.utils import CursorWrapper

from billing.models import MonthProof
from billing.proof import records
from billing.proof.records import Held, MonthRecords
from clusters import temp_tables, usage
from portal.sql_files import Statements

sql = Statements(__file__, "late.sql")


def list_months(cursor: CursorWrapper) -> list[date]:
    """Dropped months that have late records. One query."""
    cursor.execute(sql.MONTHS)
    return [month for (month,) in cursor.fetchall()]


def recompute(cursor: CursorWrapper) -> dict[date, MonthRecords]:
    """Prove the late records of each month, and add their sums to `prove_sum`, which has no others yet."""
    months = list_months(cursor)
    ids = usage.ids_of(months)
    return {month: records.recompute(cursor, month, ids[month], before=None, late=True) for month in months}


def list_lost(cursor: CursorWrapper, attached: Collection[date]) -> list[str]:
    """Months of which records came back that are in no table any more, with how many. One query.

    Those of a month whose table was detached are in that one.
    """
    cursor.execute(sql.LOST)
    return [
        f"{month:%Y-%m}: {lost:,} late usage records are gone"
        for month, lost in cursor.fetchall()
        if month in attached
    ]


def take_out(cursor: CursorWrapper, month: date, record_ids: Sequence[int]) -> bool:
    """Take what these records add, which just came back as they were, out of what is kept with a dropped month.

    False where it did not have all of it. For whoever holds the month, and rated nothing of the records yet.
    """
    values: dict[str, Any] = {"month": month, "records": list(record_ids)}
    cursor.execute(sql.TAKE_OUT, values)
    taken = sum(rows for (rows,) in cursor.fetchall())
    cursor.execute(sql.COUNT, values)
    if taken != cursor.fetchone()[0]:
        return False
    proof = MonthProof.objects.get(month=month)
    held: Held = defaultdict(Fraction, records.of_proof(proof))
    for key, value in _held(cursor, record_ids).items():
        held[key] -= value
    proof.held = records.as_data(held)
    proof.records -= len(record_ids)
    proof.save(update_fields=["held", "records"])
    return True


def _held(cursor: CursorWrapper, record_ids: Sequence[int]) -> Held:
    temp_tables.prepare(cursor, "PROVE")
    cursor.execute(records.sql.CHARGED_TIME)
    usage.load_records(record_ids)
    sums = records.held(cursor)
    temp_tables.empty(cursor, "PROVE", "USAGE")
    return sums
