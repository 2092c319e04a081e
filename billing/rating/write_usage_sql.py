"""The statements by which `rating` writes `rate_change`: rated usage, its totals, and the jobs that tenants see."""

from __future__ import annotations

from billing.rating.price_spans_sql import midnight

_RATED = """
INSERT INTO billing_ratedusage (id, service_month, revision, generation, reversal, record_id, resource, tenant_id,
    project_id, period_id, version_id, price_id, verdict, service_from, service_to, share_num, share_den, units,
    payer_id)
SELECT c.id, c.service_month, c.revision, c.generation, c.units < 0, c.record_id, o.resource, o.tenant_id,
       o.project_id, o.period_id, o.version_id, o.price_id, o.verdict, c.service_from, c.service_to, c.share_num,
       c.share_den, c.units, o.payer_id
FROM rate_change c JOIN rate_offer o USING (offer_id)
"""

# Totals are summed per offer first, by few and narrow columns, and priced when they are sums.
_PERIOD_TOTAL = """
INSERT INTO billing_periodtotal AS t
    (tenant_id, period_id, project_id, gpu_model, resource, verdict, price_id, share_den, payer_id, units, amount,
     last_rated_id)
SELECT o.tenant_id, o.period_id, o.project_id, c.gpu_model, o.resource, o.verdict, o.price_id, c.share_den, o.payer_id,
       sum(c.units), coalesce(sum(c.units * o.unit_price), 0), max(c.last)
FROM (
    SELECT offer_id, gpu_model, share_den, sum(units * share_num) AS units, max(id) AS last
    FROM rate_change GROUP BY 1, 2, 3
) c JOIN rate_offer o USING (offer_id)
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9
ON CONFLICT ON CONSTRAINT period_total_is_kept_once DO UPDATE SET units = t.units + excluded.units,
    amount = t.amount + excluded.amount, last_rated_id = greatest(t.last_rated_id, excluded.last_rated_id)
"""

_USER_TOTAL = """
INSERT INTO billing_usertotal AS t (tenant_id, period_id, "user", resource, share_den, units, amount)
SELECT o.tenant_id, o.period_id, c."user", o.resource, c.share_den, sum(c.units),
       coalesce(sum(c.units * o.unit_price), 0)
FROM (
    SELECT offer_id, "user", share_den, sum(units * share_num) AS units
    FROM rate_change WHERE counted GROUP BY 1, 2, 3
) c JOIN rate_offer o USING (offer_id)
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
ON CONFLICT ON CONSTRAINT user_total_is_kept_once DO UPDATE
SET units = t.units + excluded.units, amount = t.amount + excluded.amount
"""

# The days of each zone, each under every UTC day that it touches: a moment's day is found by equality.
_DAYS = f"""
INSERT INTO rate_day
SELECT d.timezone, utc_day, d.day, d.since, d.until, utc_day = d.since / 86400
FROM (
    SELECT z.timezone, day::date, {midnight("day", "z.timezone")} AS since,
           {midnight("day + '1 day'", "z.timezone")} AS until
    FROM (SELECT min(service_from) AS since, max(service_to) - 1 AS last FROM rate_change WHERE counted) reach
    CROSS JOIN (SELECT DISTINCT timezone FROM rate_offer) z
    CROSS JOIN LATERAL generate_series(
        date_trunc('day', to_timestamp(reach.since) AT TIME ZONE z.timezone),
        date_trunc('day', to_timestamp(reach.last) AT TIME ZONE z.timezone), '1 day') AS day
) d CROSS JOIN LATERAL generate_series(d.since / 86400, (d.until - 1) / 86400) AS utc_day
WHERE d.since < d.until;
ANALYZE rate_day
"""

# Most runs lie within one day; the others are split over the days of their period's zone by cumulative floors of
# their own units, so that the days of a row add up to it whatever its length. Over the hours of those days likewise:
# they add up to the same days.
_PIECES = """
row AS MATERIALIZED (
    SELECT c.offer_id, c.{what}, c.share_den, c.share_num, c.units, c.service_from, c.service_to,
           d.timezone, {parts}, d.since, d.until
    FROM rate_change c JOIN {offers} o USING (offer_id)
    JOIN {slots} d ON d.timezone = o.timezone AND {within}
    WHERE c.counted AND d.since <= c.service_from AND d.until > c.service_from
), piece AS (
    SELECT offer_id, {own}, {what}, share_den, share_num, units FROM row WHERE service_to <= until
    UNION ALL
    SELECT r.offer_id, {parts}, r.{what}, r.share_den, r.share_num,
           CASE WHEN mod(r.units, r.service_to - r.service_from) = 0
                THEN r.units / (r.service_to - r.service_from)
                     * (least(d.until, r.service_to) - greatest(d.since, r.service_from))
                ELSE sign(r.units)::bigint * (
                    div((least(d.until, r.service_to) - r.service_from)::numeric * abs(r.units),
                        r.service_to - r.service_from)
                    - div((greatest(d.since, r.service_from) - r.service_from)::numeric * abs(r.units),
                          r.service_to - r.service_from))::bigint END
    FROM row r CROSS JOIN LATERAL (
        SELECT * FROM {slots} d WHERE {each} AND d.timezone = r.timezone
          AND d.since >= r.since AND d.since < r.service_to OFFSET 0
    ) d WHERE r.service_to > r.until
)"""


def pieces(what: str) -> str:
    """The changes by day and one more column: a common table expression named `piece`."""
    return _PIECES.format(
        what=what,
        offers="rate_offer",
        slots="rate_day",
        parts="d.day",
        own="day",
        within="d.utc_day = c.service_from / 86400",
        each="d.first",
    )


def pieces_by_hour(what: str, *, offers: str) -> str:
    """The changes of these offers by day, full hour of UTC and one more column; after `HOURS`."""
    return _PIECES.format(
        what=what,
        offers=offers,
        slots="rate_hour",
        parts="d.day, d.hour",
        own="day, hour",
        within="d.hour = c.service_from / 3600",
        each="true",
    )


# The hours of each day; one that a midnight lies in is of both days.
HOURS = """
INSERT INTO rate_hour
SELECT d.timezone, hour, d.day, greatest(d.since, hour * 3600), least(d.until, (hour + 1) * 3600)
FROM rate_day d CROSS JOIN LATERAL generate_series(d.since / 3600, (d.until - 1) / 3600) AS hour
WHERE d.first;
ANALYZE rate_hour
"""


_DAY_TOTAL = f"""
INSERT INTO billing_daytotal AS t (tenant_id, day, project_id, gpu_model, resource, share_den, units, amount)
WITH {pieces("gpu_model")}
SELECT o.tenant_id, p.day, o.project_id, p.gpu_model, o.resource, p.share_den, sum(p.units),
       coalesce(sum(p.units * o.unit_price), 0)
FROM (
    SELECT offer_id, day, gpu_model, share_den, sum(units * share_num) AS units FROM piece GROUP BY 1, 2, 3, 4
) p JOIN rate_offer o USING (offer_id)
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
ON CONFLICT ON CONSTRAINT day_total_is_kept_once DO UPDATE
SET units = t.units + excluded.units, amount = t.amount + excluded.amount
"""

# A run that holds nothing (waiting, or of zero length) belongs to who owned its account when it was asked for.
_IDLE = """
    SELECT u.record_id, n.tenant_id, n.project_id FROM usage_input u
    JOIN tenants_ownership n ON n.account_id = u.account_id
        AND (n.since IS NULL OR n.since <= to_timestamp(coalesce(u.started, u.submitted, 0)))
        AND (n.until IS NULL OR n.until > to_timestamp(coalesce(u.started, u.submitted, 0)))
    WHERE NOT EXISTS (SELECT 1 FROM {cuts} w WHERE w.record_id = u.record_id)"""

_SHOWN = """tenant_id, record_id, project_id, cluster, account, job_id, name, "user", queue, qos, gpu_model,
     mig_profile, gpus, share_num, share_den, cpu_milli, memory_mib, gpu_memory_mib, billing, nodes, state, submitted,
     started, ended, seen_until, suspended, shown_at, gpu_units, cost_rank, unpriced"""

# Of a second of one unit; a GPU's own fraction comes on top. Offers are numbered in order of time.
_COST = """CASE WHEN f.resource = 'gpu' AND (c.share_num, c.share_den) <> (1, 1)
                        THEN c.units * c.share_num * f.second_cost / c.share_den
                        ELSE c.units * f.second_cost END"""

_JOBS = f"""
    SELECT o.tenant_id, u.record_id, o.project_id, u.cluster, u.account, u.job_id, u.name, u."user", u.queue, u.qos,
           u.gpu_model, u.mig_profile, u.gpus, u.share_num, u.share_den, u.cpu_milli, u.memory_mib, u.gpu_memory_mib,
           u.billing, u.nodes, u.state, u.submitted, u.started, u.ended, u.seen_until, u.suspended,
           coalesce(u.started, u.submitted, 0) AS shown_at,
           o.gpu_units, o.cost::numeric(30, 6) AS cost_rank, o.unpriced
    FROM (
        SELECT w.record_id, w.tenant_id, f.project_id, w.gpu_units, w.cost, w.unpriced
        FROM (
            SELECT c.record_id, f.tenant_id, max(c.offer_id) AS newest,
                   coalesce(sum(c.units) FILTER (WHERE f.resource = 'gpu'), 0) AS gpu_units,
                   coalesce(sum({_COST}), 0) AS cost, bool_or(f.verdict = 'unpriced') AS unpriced
            FROM {{cuts}} c JOIN rate_offer f USING (offer_id)
            GROUP BY c.record_id, f.tenant_id
        ) w JOIN rate_offer f ON f.offer_id = w.newest
        UNION ALL
        SELECT i.record_id, i.tenant_id, i.project_id, 0, 0, false FROM ({_IDLE}) i
    ) o JOIN usage_input u ON u.record_id = o.record_id
"""

_JOBS_OF_UNRATED = f"INSERT INTO billing_ratedjob ({_SHOWN}) {_JOBS.format(cuts='rate_change')}"

_JOBS_GONE = f"""
DELETE FROM billing_ratedjob WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM (
        SELECT record_id, tenant_id FROM rate_before
        EXCEPT SELECT w.record_id, o.tenant_id FROM rate_wanted w JOIN rate_offer o USING (offer_id)
        EXCEPT SELECT record_id, tenant_id FROM ({_IDLE.format(cuts="rate_wanted")}) i
    ) gone CROSS JOIN LATERAL (
        SELECT r.ctid FROM billing_ratedjob r
        WHERE r.record_id = gone.record_id AND r.tenant_id = gone.tenant_id OFFSET 0
    ) k
))
"""


def _each(alias: str) -> str:
    return ", ".join(f"{alias}.{column.strip()}" for column in _SHOWN.split(","))


# Only jobs that show something new are written, be it a single one of ten thousand.
_JOBS_CHANGED = f"""
INSERT INTO billing_ratedjob AS j ({_SHOWN})
SELECT {_each("s")} FROM ({_JOBS.format(cuts="rate_wanted")}) s LEFT JOIN LATERAL (
    SELECT * FROM billing_ratedjob r WHERE r.record_id = s.record_id AND r.tenant_id = s.tenant_id OFFSET 0
) k ON true
WHERE ({_each("s")}) IS DISTINCT FROM ({_each("k")})
ON CONFLICT (record_id, tenant_id) DO UPDATE SET
    project_id = excluded.project_id, account = excluded.account, job_id = excluded.job_id, name = excluded.name,
    "user" = excluded."user", queue = excluded.queue, qos = excluded.qos, gpu_model = excluded.gpu_model,
    mig_profile = excluded.mig_profile, gpus = excluded.gpus, share_num = excluded.share_num,
    share_den = excluded.share_den, cpu_milli = excluded.cpu_milli, memory_mib = excluded.memory_mib,
    gpu_memory_mib = excluded.gpu_memory_mib, billing = excluded.billing, nodes = excluded.nodes,
    state = excluded.state, submitted = excluded.submitted, started = excluded.started,
    ended = excluded.ended, seen_until = excluded.seen_until, suspended = excluded.suspended,
    shown_at = excluded.shown_at, gpu_units = excluded.gpu_units, cost_rank = excluded.cost_rank,
    unpriced = excluded.unpriced
"""

RATED = (_RATED, _PERIOD_TOTAL, _USER_TOTAL, _DAYS, _DAY_TOTAL)

JOBS_OF_UNRATED = (_JOBS_OF_UNRATED,)

JOBS_CHANGED = (_JOBS_GONE, _JOBS_CHANGED)
"""After `RATED`: totals of reversals are kept under the description that these then replace."""
