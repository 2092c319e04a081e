"""Statements that add rows of dropped months, of all tenants, to those of the tables in an operator's transaction.

As in `shown_rows_sql`, names without a schema mean these views; tables and views go with the savepoint.
"""

from __future__ import annotations

from billing.sealed_months.rows_sql import JOBS, RATED, RECORDS
from billing.sealed_months.shown_rows_sql import DROPPED, LATE, shown_as_long_as

TABLES = {RECORDS.name: "filed_record", RATED.name: "filed_rated", JOBS.name: "filed_job"}
"""By kind the temporary table that its rows are in."""

SCOPE = """
SELECT current_setting('role') NOT IN ('clustertab_portal', 'clustertab_member', 'clustertab_agent')
       AND coalesce(current_setting('app.tenant_id', true), '') = '',
       pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'
"""


def _while_dropped(record: str) -> str:
    return f"{record} >> 40 IN {DROPPED} AND {record} NOT IN {LATE}"


PREPARE = f"""
CREATE TEMP TABLE filed_record (LIKE public.clusters_usagerecord INCLUDING DEFAULTS INCLUDING GENERATED) ON COMMIT DROP;
CREATE TEMP TABLE filed_rated (LIKE public.billing_ratedusage INCLUDING DEFAULTS INCLUDING GENERATED) ON COMMIT DROP;
CREATE TEMP TABLE filed_job (LIKE public.billing_ratedjob INCLUDING DEFAULTS INCLUDING GENERATED) ON COMMIT DROP;
CREATE UNIQUE INDEX ON filed_record (id);
CREATE INDEX ON filed_rated (record_id);
CREATE UNIQUE INDEX ON filed_job (record_id, tenant_id);
{shown_as_long_as("filed_record", _while_dropped("id"))}
{shown_as_long_as("filed_job", _while_dropped("record_id"))}
{
    shown_as_long_as(
        "filed_rated",
        f"{_while_dropped('record_id')} AND service_month IN (SELECT public.billing_dropped_months())",
    )
}
DO $$
DECLARE
    runs text := pg_get_viewdef('public.clusters_run'::regclass);
BEGIN
    CREATE TEMP VIEW clusters_usagerecord AS
    SELECT * FROM public.clusters_usagerecord UNION ALL SELECT * FROM filed_record;
    EXECUTE 'CREATE TEMP VIEW clusters_run AS ' || runs;
END $$;
CREATE TEMP VIEW billing_ratedusage AS SELECT * FROM public.billing_ratedusage UNION ALL SELECT * FROM filed_rated;
CREATE TEMP VIEW billing_ratedjob AS SELECT * FROM public.billing_ratedjob UNION ALL SELECT * FROM filed_job
"""
"""The view of runs is defined by names that mean the tables before the other views are made, and those after."""

NUMBERS = "COPY (SELECT id FROM filed_record) TO STDOUT (FORMAT csv)"
"""Of the records that were read, for the rated usage of them alone."""

FILLED = "ANALYZE filed_record, filed_rated, filed_job; DISCARD PLANS"
