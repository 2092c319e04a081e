"""What a tenant used itself, read for it alone: from the view that shows whoever acts for it no other records.

What of it stands in files alone is read in the tenant's scope, too, as its pages read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from tempfile import TemporaryFile

from django.db import connection
from django.db.models import Sum

from billing.models import SealedFile
from clusters import absent_records, temp_tables, usage
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import reading_scope

_LOAD = """
INSERT INTO usage_input
SELECT * FROM (
    SELECT o.*, false FROM billing_ownusage o
    WHERE o.started < %(until)s AND o.finish > %(since)s
    UNION ALL
    SELECT f.* FROM usage_filed f
    WHERE f.record_id >> 40 IN (SELECT month_number(extract(epoch FROM m)::bigint) FROM billing_dropped_months() m)
      AND f.record_id NOT IN (SELECT billing_late_records())
) own ORDER BY record_id LIMIT %(most)s
"""


def load_own(tenant: Tenant, *, since: int, until: int, most: int) -> int | None:
    """Fill `usage_input` with the tenant's records that held something during [since, until), in epoch seconds.

    In a transaction of acting for the tenant. Returns how many; None, and it is empty, where they are more than `most`.
    Raises RowsInFilesError.
    """
    load_filed([tenant], since=since, until=until, most=most)
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE")
        cursor.execute(_LOAD, {"since": since, "until": until, "most": most + 1})
        count = cursor.rowcount
        if count > most:
            temp_tables.empty(cursor, "USAGE")
            return None
    return int(count)


def load_filed(tenants: Sequence[Tenant], *, since: int, until: int, most: int | None = None) -> None:
    """Have `usage_filed` hold what these tenants' files alone have of [since, until): of one after another.

    Until the transaction ends no further month is dropped. Not of a tenant with more than `most` jobs in the months.
    Raises RowsInFilesError. Two queries where no month is dropped.
    """
    usage.empty_filed()
    months = absent_records.list_between(since, until)
    for tenant in tenants if months else ():
        with TemporaryFile() as rows:
            with reading_scope(tenant):
                absent_records.write_usage(months, rows, since=since, until=until, most=most)
            rows.seek(0)
            usage.load_filed(rows)


def count_filed(tenants: Sequence[Tenant], *, since: int, until: int) -> tuple[int, int]:
    """How many jobs stand in files alone that may have held something during [since, until), and of how many tenants.

    Two queries at most.
    """
    months: Sequence[date] = absent_records.list_between(since, until)
    if not months:
        return 0, 0
    files = SealedFile.objects.filter(kind="jobs", month__month__in=months, tenant__in=tenants)
    by_tenant = files.order_by().values_list("tenant").annotate(jobs=Sum("rows"))
    return sum(jobs for _, jobs in by_tenant), len(by_tenant)
