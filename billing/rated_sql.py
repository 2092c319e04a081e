"""The statements by which `rating` writes `rate_change`: rated usage, its totals, and the jobs that tenants see."""

from __future__ import annotations

from billing.rating_sql import KEY, key_of, midnight

_RATED = f"""
INSERT INTO billing_ratedusage (id, service_month, revision, generation, reversal, {KEY}, units)
SELECT c.id, date_trunc('month', to_timestamp(c.service_from) AT TIME ZONE 'UTC')::date, u.revision, c.generation,
       c.units < 0, {key_of("c")}, c.units
FROM rate_change c JOIN usage_input u ON u.record_id = c.record_id
"""  # noqa: S608 - built from constants

_PERIOD_TOTAL = """
INSERT INTO billing_periodtotal AS t
    (tenant_id, period_id, project_id, gpu_model, resource, verdict, price_id, share_den, units, amount, last_rated_id)
SELECT c.tenant_id, c.period_id, c.project_id, c.gpu_model, c.resource, c.verdict, c.price_id, c.share_den,
       sum(c.units * c.share_num), coalesce(sum(c.units * c.share_num * p.unit_price), 0), max(c.id)
FROM rate_change c LEFT JOIN billing_price p ON p.id = c.price_id
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8
ON CONFLICT ON CONSTRAINT period_total_is_kept_once DO UPDATE SET units = t.units + excluded.units,
    amount = t.amount + excluded.amount, last_rated_id = greatest(t.last_rated_id, excluded.last_rated_id)
"""

_USER_TOTAL = """
INSERT INTO billing_usertotal AS t (tenant_id, period_id, "user", resource, share_den, units, amount)
SELECT c.tenant_id, c.period_id, c."user", c.resource, c.share_den, sum(c.units * c.share_num),
       coalesce(sum(c.units * c.share_num * p.unit_price), 0)
FROM rate_change c LEFT JOIN billing_price p ON p.id = c.price_id
WHERE c.resource = 'gpu' OR c.verdict = 'charged'
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
ON CONFLICT ON CONSTRAINT user_total_is_kept_once DO UPDATE
SET units = t.units + excluded.units, amount = t.amount + excluded.amount
"""

# Most runs lie within one day; the others are split over the days of their period's zone by cumulative floors of
# their own units, so that the days of a row add up to it whatever its length.
_DAY_TOTAL = f"""
INSERT INTO billing_daytotal AS t (tenant_id, day, project_id, gpu_model, resource, share_den, units, amount)
WITH row AS (
    SELECT c.*, p.unit_price, b.timezone,
           (to_timestamp(c.service_from) AT TIME ZONE b.timezone)::date AS first,
           (to_timestamp(c.service_to - 1) AT TIME ZONE b.timezone)::date AS last
    FROM rate_change c JOIN billing_billingperiod b ON b.id = c.period_id
    LEFT JOIN billing_price p ON p.id = c.price_id
    WHERE c.resource = 'gpu' OR c.verdict = 'charged'
), piece AS (
    SELECT tenant_id, first AS day, project_id, gpu_model, resource, share_den, share_num, unit_price, units
    FROM row WHERE first = last
    UNION ALL
    SELECT tenant_id, day::date, project_id, gpu_model, resource, share_den, share_num, unit_price,
           sign(units)::bigint * (
               div((least({midnight("day + '1 day'", "timezone")}, service_to) - service_from)::numeric
                   * abs(units), service_to - service_from)
               - div((greatest({midnight("day", "timezone")}, service_from) - service_from)::numeric
                   * abs(units), service_to - service_from))::bigint
    FROM row CROSS JOIN LATERAL generate_series(first::timestamp, last::timestamp, '1 day') AS day
    WHERE first <> last
)
SELECT tenant_id, day, project_id, gpu_model, resource, share_den, sum(units * share_num),
       coalesce(sum(units * share_num * unit_price), 0)
FROM piece GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
ON CONFLICT ON CONSTRAINT day_total_is_kept_once DO UPDATE
SET units = t.units + excluded.units, amount = t.amount + excluded.amount
"""  # noqa: S608 - built from constants

# A run that holds nothing (waiting, or of zero length) belongs to who owned its account when it was asked for.
_IDLE = """
    SELECT u.record_id, n.tenant_id, n.project_id FROM usage_input u
    JOIN tenants_ownership n ON n.account_id = u.account_id
        AND (n.since IS NULL OR n.since <= to_timestamp(coalesce(u.started, u.submitted, 0)))
        AND (n.until IS NULL OR n.until > to_timestamp(coalesce(u.started, u.submitted, 0)))
    WHERE NOT EXISTS (SELECT 1 FROM {cuts} w WHERE w.record_id = u.record_id)"""

_SHOWN = """tenant_id, record_id, project_id, cluster, account, job_id, name, "user", queue, qos, gpu_model,
     mig_profile, gpus, share_num, share_den, cpu_milli, memory_mib, nodes, state, submitted, started, ended,
     seen_until, shown_at, gpu_units, cost_rank, unpriced"""

_JOBS = f"""
    SELECT o.tenant_id, u.record_id, o.project_id, u.cluster, u.account, u.job_id, u.name, u."user", u.queue, u.qos,
           u.gpu_model, u.mig_profile, u.gpus, u.share_num, u.share_den, u.cpu_milli, u.memory_mib, u.nodes, u.state,
           u.submitted, u.started, u.ended, u.seen_until, coalesce(u.started, u.submitted, 0) AS shown_at,
           o.gpu_units, o.cost::numeric(30, 6) AS cost_rank, o.unpriced
    FROM (
        SELECT w.record_id, w.tenant_id, (array_agg(w.project_id ORDER BY w.service_from DESC))[1] AS project_id,
               coalesce(sum(w.units) FILTER (WHERE w.resource = 'gpu'), 0) AS gpu_units,
               coalesce(sum(w.units * w.share_num * p.unit_price / (w.share_den * 3600::numeric)), 0) AS cost,
               bool_or(w.verdict = 'unpriced') AS unpriced
        FROM {{cuts}} w LEFT JOIN billing_price p ON p.id = w.price_id
        GROUP BY w.record_id, w.tenant_id
        UNION ALL
        SELECT i.record_id, i.tenant_id, i.project_id, 0, 0, false FROM ({_IDLE}) i
    ) o JOIN usage_input u ON u.record_id = o.record_id
"""  # noqa: S608 - built from constants

_JOBS_OF_FRESH = f"INSERT INTO billing_ratedjob ({_SHOWN}) {_JOBS.format(cuts='rate_change')}"

_JOBS_GONE = f"""
DELETE FROM billing_ratedjob WHERE id = ANY (ARRAY(
    SELECT k.id FROM (
        SELECT u.record_id, j.tenant_id FROM usage_input u CROSS JOIN LATERAL (
            SELECT tenant_id FROM billing_ratedjob r WHERE r.record_id = u.record_id OFFSET 0
        ) j WHERE NOT u.fresh
        EXCEPT SELECT record_id, tenant_id FROM rate_wanted
        EXCEPT SELECT record_id, tenant_id FROM ({_IDLE.format(cuts="rate_wanted")}) i
    ) gone CROSS JOIN LATERAL (
        SELECT id FROM billing_ratedjob r WHERE r.record_id = gone.record_id AND r.tenant_id = gone.tenant_id OFFSET 0
    ) k
))
"""  # noqa: S608 - built from constants


def _each(alias: str) -> str:
    return ", ".join(f"{alias}.{column.strip()}" for column in _SHOWN.split(","))


# Only jobs that show something new are written, be it a single one of ten thousand.
_JOBS_CHANGED = f"""
INSERT INTO billing_ratedjob AS j ({_SHOWN})
SELECT {_each("s")} FROM ({_JOBS.format(cuts="rate_wanted")}) s LEFT JOIN LATERAL (
    SELECT * FROM billing_ratedjob r WHERE r.record_id = s.record_id AND r.tenant_id = s.tenant_id OFFSET 0
) k ON true
WHERE ({_each("s")}) IS DISTINCT FROM ({_each("k")})
ON CONFLICT ON CONSTRAINT job_is_shown_once_per_tenant DO UPDATE SET
    project_id = excluded.project_id, account = excluded.account, job_id = excluded.job_id, name = excluded.name,
    "user" = excluded."user", queue = excluded.queue, qos = excluded.qos, gpu_model = excluded.gpu_model,
    mig_profile = excluded.mig_profile, gpus = excluded.gpus, share_num = excluded.share_num,
    share_den = excluded.share_den, cpu_milli = excluded.cpu_milli, memory_mib = excluded.memory_mib,
    nodes = excluded.nodes, state = excluded.state, submitted = excluded.submitted, started = excluded.started,
    ended = excluded.ended, seen_until = excluded.seen_until, shown_at = excluded.shown_at,
    gpu_units = excluded.gpu_units, cost_rank = excluded.cost_rank, unpriced = excluded.unpriced
"""  # noqa: S608 - built from constants

_TOTALS = (_RATED, _PERIOD_TOTAL, _USER_TOTAL, _DAY_TOTAL)

WRITE_FRESH = (*_TOTALS, _JOBS_OF_FRESH)

WRITE_CHANGED = (*_TOTALS, _JOBS_GONE, _JOBS_CHANGED)
"""In this order: totals of reversals are kept under the description that `_JOBS_CHANGED` then replaces."""
