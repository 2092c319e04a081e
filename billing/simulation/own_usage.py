"""What a tenant used itself, read for it alone: from the view that shows whoever acts for it no other records."""

from __future__ import annotations

from django.db import connection

from clusters import absent_records, temp_tables

_LOAD = """
INSERT INTO usage_input
SELECT o.*, false FROM billing_ownusage o
WHERE o.started < %(until)s AND o.finish > %(since)s ORDER BY o.record_id LIMIT %(most)s
"""


def load_own(*, since: int, until: int, most: int) -> int | None:
    """Fill `usage_input` with the tenant's records that held something during [since, until), in epoch seconds.

    Returns how many; None, and it is empty, where they are more than `most`. Raises RowsInFilesError.
    """
    absent_records.refuse_between(since, until)
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE")
        cursor.execute(_LOAD, {"since": since, "until": until, "most": most + 1})
        count = cursor.rowcount
        if count > most:
            temp_tables.empty(cursor, "USAGE")
            return None
    return int(count)
