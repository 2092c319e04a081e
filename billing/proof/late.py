"""The proof of dropped months of which some records came back: late ones, in their tables.

What is kept with such a month is of the records in its files alone; it shrinks as one of them comes back. The late ones
are few, and recomputed each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

from django.db.backends.utils import CursorWrapper

from billing.models import MonthProof
from billing.proof import records
from billing.proof.names import named
from billing.proof.records import Held, MonthRecords
from clusters import temp_tables, usage
from portal.sql_files import Statements

sql = Statements(__file__, "late.sql")

GONE = "the late usage record {key} of {cluster} is gone: bring it back from a backup"


def list_months(cursor: CursorWrapper) -> list[date]:
    """Dropped months that have late records. One query."""
    cursor.execute(sql.MONTHS)
    return [month for (month,) in cursor.fetchall()]


def list_noted(cursor: CursorWrapper) -> list[date]:
    """Dropped months that have late records, or had some that are gone. One query."""
    cursor.execute(sql.NOTED)
    return [month for (month,) in cursor.fetchall()]


def recompute(cursor: CursorWrapper, months: Collection[date]) -> dict[date, MonthRecords]:
    """Prove the late records of each of these months, and add their sums to `prove_sum`, which has no others yet."""
    ids = usage.ids_of(months)
    return {month: records.recompute(cursor, month, ids[month], before=None, late=True) for month in months}


def list_lost(cursor: CursorWrapper, attached: Collection[date]) -> dict[date, list[str]]:
    """By month its late records that are in no table any more, up to ten. Two queries.

    Those of a month whose table was detached are in that one.
    """
    cursor.execute(sql.LOST, {"months": list(attached)})
    names = usage.cluster_names()
    lost: dict[date, list[str]] = defaultdict(list)
    for month, key, cluster in cursor.fetchall():
        lost[month].append(GONE.format(key=key, cluster=names.get(cluster, cluster)))
    return lost


def keep(
    proofs: Iterable[MonthProof], results: Mapping[date, MonthRecords], lost: Mapping[date, Sequence[str]]
) -> None:
    """Keep with the proofs of dropped months what is wrong with their late records now, and nothing else."""
    for proof in proofs:
        result = results.get(proof.month)
        texts = (
            [text for texts in result.broken.values() for text in texts] + result.unclosed if result else []
        )
        broken = [*lost.get(proof.month, ()), *named(texts)][:10]
        if proof.broken != broken:  # an import may take records out of the same proof meanwhile
            proof.broken = broken
            proof.save(update_fields=["broken"])


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
