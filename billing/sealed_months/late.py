"""Late records: single ones of a dropped month that come back from its files, while the month stays dropped.

Whatever stands in the table of records is no longer looked for in the files, nor what was rated of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from django.db import connection

from billing.models import SealedFile, SealedMonth
from billing.proof import late
from billing.sealed_months import load, verify
from billing.sealed_months.errors import SealError
from billing.sealed_months.rows_sql import JOBS, RATED, RECORDS
from clusters import usage
from clusters.absent_records import FOUND

log = structlog.get_logger(__name__)

INSERT = """
INSERT INTO {table} ({columns})
SELECT {columns} FROM {found} WHERE source_key = ANY (%(keys)s) AND id > %(after)s AND id <= %(last)s RETURNING id
""".format(table=RECORDS.table, found=FOUND, columns=", ".join(f'"{name}"' for name in RECORDS.columns))


def load_records(row: SealedMonth, keys: Sequence[str]) -> None:
    """Bring the records with these keys back that stand in FOUND, with their jobs and all that was rated of them.

    What the month's proof says is of the others from then on. For a caller that has locked the row, and rolls back what
    raises SealError: for a file that is not as it was sealed, also where only loading the whole month would need it.
    """
    after, last = usage.ids_of([row.month])[row.month]
    files = verify.files_of(row)
    elsewhere = {file.month_id for file in load.later_files(row)}
    # Nobody loads those back, or drops them, before these rows are there.
    list(SealedMonth.objects.select_for_update().filter(pk__in=elsewhere).order_by("month"))
    later = load.later_files(row)
    with load.checked(row, [*files, *later]) as (directory, program, names), connection.cursor() as cursor:
        cursor.execute(load.PARTITIONS, {"month": row.month})
        cursor.execute(INSERT, {"keys": list(keys), "after": after, "last": last})
        records = [record for (record,) in cursor.fetchall()]
        for kind in (JOBS, RATED):
            own: list[SealedFile] = [file for file in files if file.kind == kind.name]
            own += later if kind is RATED else []
            if not own:
                continue
            program.rows.write_text("".join(f"{record:d}\n" for record in records))
            program.pick([directory / file.path for file in own], "record_id")
            load.copy_in(cursor, kind, program.rows)
            cursor.execute(kind.leave_missing(as_owned_now=False))
            cursor.execute(kind.insert(), {"names": names})
            if load.differs(cursor, kind, names):
                raise SealError("loaded-differs", place=f"{row}")
            cursor.execute("DROP TABLE sealed_rows")
        if not late.take_out(cursor, row.month, records):
            raise SealError("loaded-differs", place=f"{row}")
    log.info("late records of a dropped month loaded back", month=f"{row}", records=len(records))
