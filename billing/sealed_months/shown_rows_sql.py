"""Statements that show rows of dropped months beside those of the tables, in a transaction that reads for one tenant.

Names without a schema mean these views in whatever statement follows; tables and views go as the transaction ends.
"""

from __future__ import annotations

SCOPE = """
SELECT current_setting('role') IN ('clustertab_portal', 'clustertab_member'), pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on', (
           SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass('pg_temp.shown_month')
       ), current_user
"""

FILES = """
SELECT month, tenant_id, kind, bytes, "rows", sha256 FROM billing_own_sealed_files(%(months)s::date[])
"""

_OWN = "(SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)"
DROPPED = "(SELECT public.month_number(extract(epoch FROM m)::bigint) FROM public.billing_dropped_months() m)"
LATE = "(SELECT public.billing_late_records())"
_RATED = "SELECT * FROM public.billing_ratedusage UNION ALL SELECT * FROM shown_rated"
_SHOWN = f"tenant_id = {_OWN} AND record_id >> 40 IN {DROPPED} AND record_id NOT IN {LATE}"


def shown_as_long_as(table: str, condition: str) -> str:
    """Conditions of a view's part would keep the planner from looking a row up by its number: it would read all rows of
    that part for each job. Those of a policy do not.
    """
    return f"""
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY shown ON {table} FOR SELECT USING ({condition});
CREATE POLICY filled ON {table} FOR INSERT WITH CHECK (true);
"""


PREPARE = f"""
CREATE TEMP TABLE shown_month (month date NOT NULL, tenant_id text NOT NULL, users text NOT NULL) ON COMMIT DROP;
CREATE TEMP TABLE shown_job (LIKE public.billing_ratedjob INCLUDING DEFAULTS INCLUDING GENERATED) ON COMMIT DROP;
CREATE TEMP TABLE shown_rated (LIKE public.billing_ratedusage INCLUDING DEFAULTS INCLUDING GENERATED) ON COMMIT DROP;
CREATE TEMP TABLE shown_run ON COMMIT DROP AS
SELECT *, 0::bigint AS account_id, 0::bigint AS cpu_milli, 0::bigint AS memory_mib, 0::bigint AS cluster_id,
       0::int AS revision, ''::text AS priority_class
FROM public.billing_ownrun WITH NO DATA;
CREATE UNIQUE INDEX ON shown_job (record_id, tenant_id);
CREATE INDEX ON shown_rated (record_id);
CREATE UNIQUE INDEX ON shown_run (record_id, tenant_id);
{shown_as_long_as("shown_job", _SHOWN)}
{shown_as_long_as("shown_rated", f"{_SHOWN} AND service_month IN (SELECT public.billing_dropped_months())")}
{shown_as_long_as("shown_run", _SHOWN)}
CREATE TEMP VIEW billing_ratedjob AS SELECT * FROM public.billing_ratedjob UNION ALL SELECT * FROM shown_job;
CREATE TEMP VIEW billing_ratedusage AS {_RATED};
CREATE TEMP VIEW billing_ownrun AS
SELECT * FROM public.billing_ownrun
UNION ALL
SELECT tenant_id, record_id, cluster, account, "user", job_id, name, gpu_model, gpus, share_num, share_den, started,
       finish, suspended, submitted, eligible, ended, time_limit, state
FROM shown_run;
CREATE TEMP VIEW billing_waivedpart AS
SELECT * FROM public.billing_waivedpart
UNION ALL
SELECT r.tenant_id, r.record_id, w.project_id, w.resource, w.service_from, w.service_to, w.share_den, w.units
FROM shown_run r CROSS JOIN LATERAL public.billing_own_waived(
    r.account_id, r.cpu_milli, r.memory_mib, r.started, r.finish, r.suspended) w;
GRANT SELECT ON shown_month, billing_ratedjob, billing_ratedusage, billing_ownrun TO clustertab_agent
"""
"""Should somebody load a month back meanwhile, each statement sees its rows in the tables or here, never twice: a row
is here as long as its months are dropped, and its record is not in its table as a late one. That of rated usage is in
no table if both the month of its record and that of its service are."""

ELSEWHERE = f"""
CREATE OR REPLACE TEMP VIEW billing_ratedusage AS {_RATED}
UNION ALL
SELECT * FROM public.billing_own_rated_elsewhere(ARRAY(SELECT record_id FROM shown_job))
"""
"""For a member, whose policies look for the job of rated usage in its table: there it is no more."""

SHOWN = """
SELECT month FROM shown_month
WHERE tenant_id = current_setting('app.tenant_id', true) AND users = coalesce(current_setting('app.users', true), '')
"""

KEEP_OWN = """
DELETE FROM sealed_rows t
WHERE t.kind = 'jobs'
  AND (t.tenant_id IS DISTINCT FROM (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
   OR EXISTS (SELECT FROM shown_job j WHERE j.record_id = t.record_id AND j.tenant_id = t.tenant_id)
   OR t.record_id IN (SELECT billing_late_records())
   OR ((SELECT nullif(current_setting('app.users', true), '')) IS NOT NULL
       AND NOT EXISTS (SELECT FROM billing_own_job_users() p WHERE p.id = t."user")))
"""
"""Whatever a file has: of the tenant in scope alone, of the users that may be seen, once, and not of late records."""

COUNTED = "ANALYZE shown_job, sealed_rows (kind, id)"
"""Unless it is told how many there are, the planner reads all jobs for each run: 25,000 take 20 seconds."""

KEEP_RATED = """
DELETE FROM sealed_rows t
WHERE t.kind = 'rated'
  AND (t.tenant_id IS DISTINCT FROM (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
   OR EXISTS (SELECT FROM shown_rated r WHERE r.id = t.id AND r.record_id = t.record_id)
   OR t.record_id IN (SELECT billing_late_records())
   OR ((SELECT nullif(current_setting('app.users', true), '')) IS NOT NULL AND NOT EXISTS (
           SELECT FROM shown_job j WHERE j.record_id = t.record_id AND j.tenant_id = t.tenant_id)))
"""
"""Also of a job that is another tenant's now: documents that cover it stay. A member sees that of their jobs alone."""

EMPTIED = "DROP TABLE sealed_rows"

RUNS = """
INSERT INTO shown_run
SELECT j.tenant_id, j.record_id, j.cluster, j.account, j."user", j.job_id, j.name, j.gpu_model, j.gpus, j.share_num,
       j.share_den, t.started, coalesce(t.ended, t.seen_until), t.suspended, t.submitted, t.eligible, t.ended,
       t.time_limit, j.state, t.account_id, t.cpu_milli, t.memory_mib, t.cluster_id, t.revision, t.priority_class
FROM sealed_rows t
JOIN shown_job j ON t.kind = 'records' AND j.record_id = t.id
 AND j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
WHERE NOT EXISTS (SELECT FROM shown_run r WHERE r.record_id = j.record_id AND r.tenant_id = j.tenant_id)
ON CONFLICT DO NOTHING
"""

USAGE = f"""
COPY (
    SELECT j.record_id, r.revision, r.cluster_id, j.cluster, r.account_id, j.account, j.job_id, j.name, j."user",
           j.queue, j.qos, r.priority_class, j.gpus, j.gpu_model, j.mig_profile, j.share_num, j.share_den, j.cpu_milli,
           j.memory_mib, j.nodes, j.state, j.submitted, j.started, j.ended, j.seen_until,
           public.usage_finish(j.meter, j.started, j.ended, j.seen_until), j.suspended, j.gpu_memory_mib, j.billing,
           j.meter, j.quantity, false
    FROM shown_job j JOIN shown_run r ON r.record_id = j.record_id AND r.tenant_id = j.tenant_id
    WHERE j.tenant_id = {_OWN} AND j.started < %(until)s
      AND public.usage_finish(j.meter, j.started, j.ended, j.seen_until) > %(since)s
      AND j.record_id >> 40 IN (
          SELECT public.month_number(extract(epoch FROM m)::bigint) FROM unnest(%(months)s::date[]) m)
) TO STDOUT
"""
"""As the working table `usage_input` has records. A job shows what rating asks for, but what its run adds."""

HOURS = f"""
CREATE TEMP TABLE IF NOT EXISTS shown_hour ON COMMIT DROP AS SELECT * FROM public.billing_ownhour WITH NO DATA;
CREATE UNIQUE INDEX IF NOT EXISTS shown_hour_of_run ON shown_hour (record_id, hour, tenant_id);
CREATE OR REPLACE TEMP VIEW billing_ownhour AS
SELECT * FROM public.billing_ownhour
UNION ALL
SELECT * FROM shown_hour WHERE tenant_id = {_OWN} AND record_id >> 40 IN {DROPPED} AND record_id NOT IN {LATE};
GRANT SELECT ON shown_run TO clustertab_operator;
GRANT SELECT, INSERT ON shown_hour TO clustertab_operator
"""

FILL_HOURS = f"""
SELECT set_config('role', 'clustertab_operator', true);
INSERT INTO shown_hour
SELECT r.tenant_id, h.record_id, h.hour, h.busy, h.covered, h.source, h.metric
FROM shown_run r
JOIN (
    SELECT account_id,
           range_agg(int8range(extract(epoch FROM since)::bigint, extract(epoch FROM until)::bigint)) AS owned
    FROM tenants_ownership WHERE tenant_id = {_OWN} GROUP BY account_id
) o ON o.account_id = r.account_id
CROSS JOIN LATERAL (SELECT * FROM clusters_utilisationhour k WHERE k.record_id = r.record_id OFFSET 0) h
WHERE r.tenant_id = {_OWN} AND o.owned && int8range(h.hour, h.hour + 3600)
ON CONFLICT DO NOTHING;
SELECT set_config('role', %(role)s, true);
ANALYZE shown_hour;
DISCARD PLANS
"""
"""As the view billing_ownhour tells of runs in the tables."""

DONE = """
INSERT INTO shown_month
SELECT unnest(%(months)s::date[]), current_setting('app.tenant_id'), coalesce(current_setting('app.users', true), '');
ANALYZE shown_rated, shown_run;
DISCARD PLANS
"""
"""What was planned before means the tables alone."""
