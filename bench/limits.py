"""The best short SQL that we know for storing and rating: plain tables, one unique index each.

It is given the terms resolved (`world.resolve_terms`), typed rows and no rule that could stop it:
no revisions, no quarantine, no suspension, no row security, no jobs for tenants to look at.
"""

from __future__ import annotations

from django.db import connection

from clusters import usage

TABLES = """
CREATE TABLE bench_usage (LIKE clusters_usagerecord INCLUDING DEFAULTS);
CREATE SEQUENCE bench_usage_id;
ALTER TABLE bench_usage ALTER id SET DEFAULT nextval('bench_usage_id');
CREATE UNIQUE INDEX ON bench_usage (cluster_id, source_key);
CREATE SEQUENCE bench_ratedusage_id_seq;
CREATE TABLE bench_ratedusage (LIKE billing_ratedusage);
CREATE UNIQUE INDEX ON bench_ratedusage (record_id, resource, service_from, generation, reversal);
CREATE TABLE bench_periodtotal (tenant_id bigint, period_id bigint, project_id bigint, gpu_model text, resource text,
    verdict text, price_id bigint, share_den int, units numeric, payer_id bigint, last_rated_id bigint);
CREATE UNIQUE INDEX ON bench_periodtotal
    (tenant_id, period_id, project_id, gpu_model, resource, verdict, price_id, share_den, payer_id) NULLS NOT DISTINCT;
CREATE TABLE bench_dailyusage (tenant_id bigint, day date, project_id bigint, resource text, price_id bigint,
    share_den int, "user" text, account_id bigint, gpu_model text, queue text, qos text, state text, units numeric,
    UNIQUE NULLS NOT DISTINCT (tenant_id, day, project_id, resource, price_id, share_den, "user", account_id, gpu_model,
    queue, qos, state));
"""

_CUT = """
cut AS MATERIALIZED (
    SELECT nextval('bench_ratedusage_id_seq') AS id, u.id AS record_id, u."user", u.queue, u.qos, u.state, t.*, s.a,
           s.b,
           CASE t.resource WHEN 'gpu' THEN u.gpus WHEN 'cpu' THEN u.cpu_milli ELSE u.memory_mib END * t.sign AS held
    FROM used u JOIN bench_terms t ON t.account_id = u.account_id AND t.gpu_model = u.gpu_model
        AND t.since < u.ended AND t.until > u.started
    CROSS JOIN LATERAL (SELECT greatest(u.started, t.since) AS a, least(u.ended, t.until) AS b) s
)"""

_RATED = """
INSERT INTO bench_ratedusage
    (id, record_id, tenant_id, project_id, period_id, version_id, price_id, service_from, service_to, units,
     service_month, revision, generation, share_num, share_den, reversal, resource, verdict)
SELECT id, record_id, tenant_id, project_id, period_id, version_id, price_id, a, b, held * (b - a),
       service_month, 1, generation, 1, share_den, sign < 0, resource, verdict FROM cut"""

_ADD = "DO UPDATE SET units = t.units + excluded.units"

_TOTALS = f"""
period AS (
    INSERT INTO bench_periodtotal AS t
        (tenant_id, period_id, project_id, gpu_model, resource, verdict, price_id, share_den, units, last_rated_id)
    SELECT tenant_id, period_id, project_id, gpu_model, resource, verdict, price_id, share_den,
           sum(held * (b - a)), max(id)
    FROM cut GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
    ON CONFLICT (tenant_id, period_id, project_id, gpu_model, resource, verdict, price_id, share_den, payer_id)
    {_ADD}, last_rated_id = excluded.last_rated_id
)"""

_DAYS = """
INSERT INTO bench_dailyusage AS t (tenant_id, day, project_id, resource, price_id, share_den, "user", account_id,
    gpu_model, queue, qos, state, units)
SELECT tenant_id, '1970-01-01'::date + d::int, project_id, resource, price_id, share_den, "user", account_id,
       gpu_model, queue, qos, state, sum(held * seconds)
FROM cut CROSS JOIN LATERAL generate_series(a / 86400, (b - 1) / 86400) AS d
CROSS JOIN LATERAL (SELECT least(b, (d + 1) * 86400) - greatest(a, d * 86400) AS seconds) s
WHERE resource = 'gpu' OR verdict = 'charged' GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
ON CONFLICT (tenant_id, day, project_id, resource, price_id, share_den, "user", account_id, gpu_model, queue, qos,
    state) DO UPDATE SET units = t.units + excluded.units
"""

SLICE = 10_000

STAGE = """
CREATE TEMP TABLE IF NOT EXISTS bench_stage (LIKE clusters_usagerecord INCLUDING DEFAULTS)
    ON COMMIT DELETE ROWS;
ALTER TABLE bench_stage ALTER id DROP NOT NULL
"""

_COLUMNS = """cluster_id, account_id, source_key, job_id, name, "user", queue, qos, priority_class, gpus, gpu_model,
    mig_profile, share_num, share_den, cpu_milli, memory_mib, nodes, node_list, requested, time_limit, submitted,
    eligible, started, ended, suspended, state, exit_code, last_seen, revision"""

TAKE_IN = f"""
WITH used AS MATERIALIZED (
    INSERT INTO bench_usage ({_COLUMNS}) SELECT {_COLUMNS} FROM bench_stage
    ON CONFLICT (cluster_id, source_key) DO NOTHING RETURNING *
), {_CUT.strip()}, rated AS ({_RATED}), {_TOTALS.strip()}{_DAYS}"""

RATE = f"""
WITH used AS (SELECT * FROM clusters_usagerecord WHERE id > %s AND id <= %s),
{_CUT.strip()}, rated AS ({_RATED}), {_TOTALS.strip()}{_DAYS}"""

CORRECT = f"""
WITH used AS (SELECT * FROM clusters_usagerecord WHERE account_id = %s),
{_CUT.strip()}, rated AS ({_RATED}), {_TOTALS.strip()}{_DAYS}"""

UNKNOWN = """
SELECT count(*) FROM (SELECT *, usage_key_month(source_key)::bigint AS month FROM bench_stage) s
LEFT JOIN LATERAL (
    SELECT * FROM clusters_usagerecord u
    WHERE u.cluster_id = s.cluster_id AND u.source_key = s.source_key AND u.id >= s.month << 40
      AND u.id < (s.month + 1) << 40 OFFSET 0
) u ON true
WHERE u.id IS NULL OR (u.account_id, u.started, u.ended, u.gpus, u.cpu_milli, u.memory_mib, u.state)
    IS DISTINCT FROM (s.account_id, s.started, s.ended, s.gpus, s.cpu_milli, s.memory_mib, s.state)
"""

SUMS = """
SELECT sum(units::numeric / share_den)::numeric(40, 6),
       (SELECT sum(units / share_den)::numeric(40, 6) FROM {days}),
       (SELECT sum(units / share_den)::numeric(40, 6) FROM {tables}_periodtotal)
FROM {tables}_ratedusage
"""


DAYS = {
    "bench": "bench_dailyusage",
    "billing": "billing_dailyusage JOIN billing_usageseries s ON s.id = series_id",
}


def tables() -> None:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)


def sums(tables: str) -> tuple[object, ...]:
    """The units that were rated, and what the totals hold, of `bench` (the limit) or `billing` (ours)."""
    with connection.cursor() as cursor:
        cursor.execute(SUMS.format(tables=tables, days=DAYS[tables]))
        row: tuple[object, ...] = cursor.fetchone()
        return row


def rate(*, into: str = "bench") -> None:
    """Rate the whole ledger by `bench_terms`, 10,000 records a statement, into tables of that prefix.

    Ours keep days by series: `closing` fills them.
    """
    statement = RATE if into == "bench" else RATE.replace(_DAYS, " SELECT")
    statement = statement.replace("bench_", f"{into}_").replace(f"{into}_terms", "bench_terms")
    for after, last in usage.slices(usage.account_ids(), size=SLICE):
        with connection.cursor() as cursor:
            cursor.execute(statement, [after, last])
