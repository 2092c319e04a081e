"""What the page and the API show of sealed months: their states, sizes, who sealed them, and what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django.db import connection

from billing.models import MonthProof, SealedMonth, SealRun
from billing.proof import late
from billing.sealed_months import drop, readiness, summary, verify
from billing.sealed_months.errors import SealError
from portal.core.audit.models import AuditEntry

TABLE_BYTES = """
SELECT to_date(right(c.relname, 7), 'YYYY_MM'), sum(pg_total_relation_size(c.oid))::bigint
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent IN ('clusters_usagerecord'::regclass, 'billing_ratedjob'::regclass, 'billing_ratedusage'::regclass)
GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class MonthRow:
    """A UTC month with usage records; of one that is not sealed, the files are none and the records those of its proof.

    `name`: that of its state.
    """

    month: date
    name: str
    changed_at: datetime
    records: int
    files: int
    bytes: int
    table_bytes: int  # of its rows in the database, with their indexes
    sealed_at: datetime | None
    sealed_by: str
    dropped_at: datetime | None
    checked_at: datetime | None
    damages: Sequence[str]
    blockers: Sequence[SealError]
    has_late: bool  # dropped, and some of its records stand in the database all the same


def list_rows(*, moment: datetime, quiet_months: int) -> list[MonthRow]:
    """Every month that has records, the newest first."""
    states = readiness.list_months(moment=moment, quiet_months=quiet_months)
    proved = dict(MonthProof.objects.values_list("month", "records"))
    sealers, table_bytes = _sealers(), _table_bytes()
    with connection.cursor() as cursor:
        have_late = late.list_months(cursor)
    rows = []
    for state in states:
        row, sizes = state.sealed, summary.sizes(state.sealed)
        rows.append(
            MonthRow(
                month=state.month,
                name=state.name,
                changed_at=state.changed_at,
                records=sizes["records"] if row else proved.get(state.month, 0),
                files=sizes["files"],
                bytes=sizes["bytes"],
                table_bytes=table_bytes.get(state.month, 0),
                sealed_at=row.sealed_at if row else None,
                sealed_by=sealers.get(row.pk, "") if row else "",
                dropped_at=row.dropped_at if row else None,
                checked_at=row.checked_at if row else None,
                damages=row.damages if row else (),
                blockers=state.blockers,
                has_late=state.month in have_late,
            )
        )
    return rows


def ended_runs(limit: int) -> list[SealRun]:
    """The newest first."""
    return list(SealRun.objects.filter(ended_at__isnull=False).order_by("-pk")[:limit])


def drop_blocker(month: date) -> SealError | None:
    """Why the rows of a sealed month cannot be dropped; None where they may, as far as is known beforehand."""
    return drop.why_not_requested(SealedMonth.objects.get(month=month))


def keeps_files(month: date) -> bool:
    """Whether unsealing sets the files of the sealed month aside, and deletes none of them."""
    return verify.was_dropped(SealedMonth.objects.get(month=month))


def _table_bytes() -> dict[date, int]:
    """By month, with indexes: of records, jobs and rated usage."""
    with connection.cursor() as cursor:
        cursor.execute(TABLE_BYTES)
        return dict(cursor.fetchall())


def _sealers() -> dict[int, str]:
    """By the number of a sealed month, who sealed it, from the history."""
    entries = AuditEntry.objects.of_table(SealedMonth).filter(operation="insert")
    return {int(key): who for key, who in entries.values_list("key", "who")}
