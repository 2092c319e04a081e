-- Writing `rate_change`: rated usage, its totals, what is charged to wallets, and the jobs that tenants see.
--
-- Totals are summed per offer first, by few and narrow columns. They name their prices, as rated rows do: what they cost is
-- computed where it is read.

-- name: RATED_USAGE
-- In the order of the key, so that its index is filled page by page.
INSERT INTO billing_ratedusage (id, service_month, revision, generation, reversal, record_id, resource, tenant_id,
    project_id, period_id, version_id, price_id, verdict, service_from, service_to, share_num, share_den, units,
    payer_id)
SELECT c.id, c.service_month, c.revision, c.generation, c.units < 0, c.record_id, o.resource, o.tenant_id,
       o.project_id, o.period_id, o.version_id, o.price_id, o.verdict, c.service_from, c.service_to, c.share_num,
       c.share_den, c.units, o.payer_id
FROM rate_change c JOIN rate_offer o USING (offer_id) WHERE NOT c.grows ORDER BY c.record_id

-- name: GROWN
-- The last stretch of a run that went on, which no document covers: its row is the same, but longer and the newest.
INSERT INTO billing_ratedusage (id, service_month, revision, generation, reversal, record_id, resource, tenant_id,
    project_id, period_id, version_id, price_id, verdict, service_from, service_to, share_num, share_den, units,
    payer_id)
SELECT c.id, c.service_month, c.revision, c.generation, false, c.record_id, o.resource, o.tenant_id,
       o.project_id, o.period_id, o.version_id, o.price_id, o.verdict, c.service_from, c.service_to, c.share_num,
       c.share_den, c.units, o.payer_id
FROM rate_change c JOIN rate_offer o USING (offer_id) WHERE c.grows AND c.units > 0
ON CONFLICT ON CONSTRAINT usage_is_rated_once DO UPDATE
SET id = excluded.id, service_to = excluded.service_to, units = excluded.units, revision = excluded.revision

-- name: PERIOD_TOTALS
INSERT INTO billing_periodtotal AS t
    (tenant_id, period_id, project_id, gpu_model, resource, verdict, price_id, share_den, payer_id, units, last_rated_id)
SELECT o.tenant_id, o.period_id, o.project_id, c.gpu_model, o.resource, o.verdict, o.price_id, c.share_den, o.payer_id,
       sum(c.units), max(c.last)
FROM (
    SELECT offer_id, gpu_model, share_den, sum(units * share_num) AS units, max(id) AS last
    FROM rate_change GROUP BY 1, 2, 3
) c JOIN rate_offer o USING (offer_id)
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9
ON CONFLICT ON CONSTRAINT period_total_is_kept_once DO UPDATE SET units = t.units + excluded.units,
    last_rated_id = greatest(t.last_rated_id, excluded.last_rated_id)

-- name: MOVES
-- What is rated already of jobs whose description changed: their sums move from the old description to the new, and the
-- rated rows stay as they are. Read before anything is appended; what was taken back again moves nothing.
INSERT INTO rate_move
SELECT r.tenant_id, r.project_id, r.resource, r.price_id, p.timezone, r.service_from, r.service_to, r.share_num,
       r.share_den, sum(r.units), b.label, b.next_label
FROM rate_before b CROSS JOIN LATERAL (
    SELECT * FROM billing_ratedusage x WHERE x.record_id = b.record_id AND x.tenant_id = b.tenant_id
      AND x.service_month >= utc_month(b.started) AND x.service_month <= local_day(b.finish, 'UTC')
      AND (x.resource = 'gpu' OR x.verdict = 'charged') OFFSET 0
) r JOIN billing_billingperiod p ON p.id = r.period_id
WHERE b.label <> b.next_label
GROUP BY r.tenant_id, r.project_id, r.resource, r.price_id, p.timezone, r.service_from, r.service_to, r.share_num,
         r.share_den, b.record_id, b.label, b.next_label
HAVING sum(r.units) <> 0

-- name: DAYS
-- The days of each zone, each below every UTC day that it touches: a moment's day is found by equality.
INSERT INTO rate_day
SELECT d.timezone, utc_day, d.day, d.since, d.until, utc_day = d.since / 86400
FROM (
    SELECT z.timezone, day::date, day_start(day::date, z.timezone) AS since,
           day_start(day::date + 1, z.timezone) AS until
    FROM (
        SELECT min(since) AS since, max(last) AS last FROM (
            SELECT min(service_from) AS since, max(service_to) - 1 AS last FROM rate_change WHERE counted
            UNION ALL SELECT min(service_from), max(service_to) - 1 FROM rate_move
        ) each
    ) reach
    CROSS JOIN (SELECT timezone FROM rate_offer UNION SELECT timezone FROM rate_move) z
    CROSS JOIN LATERAL generate_series(
        date_trunc('day', to_timestamp(reach.since) AT TIME ZONE z.timezone),
        date_trunc('day', to_timestamp(reach.last) AT TIME ZONE z.timezone), '1 day') AS day
) d CROSS JOIN LATERAL generate_series(d.since / 86400, (d.until - 1) / 86400) AS utc_day
WHERE d.since < d.until;
ANALYZE rate_day

-- name: DAILY
-- What is added to each day, by all that usage is grouped by. Most runs lie within one day; the others are split over the
-- days of their period's zone. What moves away and comes back in one batch is nothing, and nobody's description.
INSERT INTO rate_daily
WITH job AS MATERIALIZED (
    SELECT record_id, label, label_digest(label) AS digest FROM (
        SELECT record_id, usage_label("user", account, cluster, gpu_model, queue, qos, state) AS label FROM usage_input
        OFFSET 0
    ) u
), row AS MATERIALIZED (
    SELECT o.tenant_id, o.project_id, o.resource, o.price_id, o.timezone, c.service_from, c.service_to, c.share_num,
           c.share_den, c.units, j.digest, j.label
    FROM rate_change c JOIN rate_offer o USING (offer_id) JOIN job j USING (record_id) WHERE c.counted
    UNION ALL
    SELECT m.tenant_id, m.project_id, m.resource, m.price_id, m.timezone, m.service_from, m.service_to, m.share_num,
           m.share_den, v.units, label_digest(v.label), v.label
    FROM rate_move m CROSS JOIN LATERAL (VALUES (-m.units, m.label), (m.units, m.next_label)) v (units, label)
), begun AS (
    SELECT r.*, d.day, d.since, d.until
    FROM row r JOIN rate_day d ON d.timezone = r.timezone AND d.utc_day = r.service_from / 86400
    WHERE d.since <= r.service_from AND d.until > r.service_from
), piece AS (
    SELECT tenant_id, project_id, resource, price_id, share_num, share_den, digest, label, day, units FROM begun
    WHERE service_to <= until
    UNION ALL
    SELECT r.tenant_id, r.project_id, r.resource, r.price_id, r.share_num, r.share_den, r.digest,
           r.label, d.day, units_within(r.units, r.service_from, r.service_to, d.since, d.until)
    FROM begun r CROSS JOIN LATERAL (
        SELECT * FROM rate_day d WHERE d.first AND d.timezone = r.timezone
          AND d.since >= r.since AND d.since < r.service_to OFFSET 0
    ) d WHERE r.service_to > r.until
)
SELECT tenant_id, day, project_id, resource, price_id, share_den, any_value(label), sum(units * share_num),
       series_digest(project_id, resource, price_id, share_den, digest)
FROM piece
GROUP BY tenant_id, day, project_id, resource, price_id, share_den, digest HAVING sum(units * share_num) <> 0;
ANALYZE rate_daily (tenant_id, digest)

-- name: SERIES
-- Only those that are new: a number that a conflict throws away is used up.
INSERT INTO billing_usageseries (tenant_id, project_id, resource, price_id, share_den, "user", account, cluster,
    gpu_model, queue, qos, state, digest)
SELECT DISTINCT ON (d.tenant_id, d.digest) d.tenant_id, d.project_id, d.resource, d.price_id, d.share_den, d.label[1],
       d.label[2], d.label[3], d.label[4], d.label[5], d.label[6], d.label[7], d.digest
FROM rate_daily d LEFT JOIN LATERAL (
    SELECT id FROM billing_usageseries s WHERE s.tenant_id = d.tenant_id AND s.digest = d.digest OFFSET 0
) s ON true WHERE s.id IS NULL ORDER BY d.tenant_id, d.digest
ON CONFLICT (tenant_id, digest) DO NOTHING

-- name: DAILY_USAGE
INSERT INTO billing_dailyusage AS t (tenant_id, day, series_id, units)
SELECT d.tenant_id, d.day, s.id, d.units FROM rate_daily d CROSS JOIN LATERAL (
    SELECT id FROM billing_usageseries s WHERE s.tenant_id = d.tenant_id AND s.digest = d.digest OFFSET 0
) s ORDER BY d.tenant_id, d.day, s.id
ON CONFLICT (tenant_id, day, series_id) DO UPDATE SET units = t.units + excluded.units

-- name: DAILY_USAGE_GONE
-- A description that all jobs of a day have left, as every job leaves `RUNNING`, keeps no row. Others stay, with nothing:
-- documents go on naming the users of what was taken back.
DELETE FROM billing_dailyusage WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM rate_daily d CROSS JOIN LATERAL (
        SELECT id FROM billing_usageseries s WHERE s.tenant_id = d.tenant_id AND s.digest = d.digest OFFSET 0
    ) s CROSS JOIN LATERAL (
        SELECT t.ctid FROM billing_dailyusage t
        WHERE t.tenant_id = d.tenant_id AND t.day = d.day AND t.series_id = s.id AND t.units = 0 OFFSET 0
    ) k WHERE d.units < 0 AND d.label IN (SELECT m.label FROM rate_move m WHERE m.label[1] = m.next_label[1])
))

-- name: DAY_TOTALS
INSERT INTO billing_daytotal AS t (tenant_id, day, project_id, gpu_model, resource, price_id, share_den, units)
SELECT tenant_id, day, project_id, label[4], resource, price_id, share_den, sum(units) FROM rate_daily
GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(units) <> 0 ORDER BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT ON CONSTRAINT day_total_is_kept_once DO UPDATE SET units = t.units + excluded.units

-- name: WALLETS_CHARGED
-- Plans that settle by wallet are few, and most sites have none: then rating does nothing of this.
SELECT EXISTS (TABLE rate_change) AND EXISTS (
               SELECT 1 FROM billing_plan p JOIN billing_planversion v ON v.plan_id = p.id
               WHERE p.settles = 'wallet' AND v.id IN (SELECT version_id FROM rate_offer))

-- name: HOURS
-- The hours of each day; one that a midnight lies in is of both days.
INSERT INTO rate_hour
SELECT d.timezone, hour, d.day, greatest(d.since, hour * 3600), least(d.until, (hour + 1) * 3600)
FROM rate_day d CROSS JOIN LATERAL generate_series(d.since / 3600, (d.until - 1) / 3600) AS hour
WHERE d.first;
ANALYZE rate_hour

-- name: WALLET_TOTALS
-- Over the hours as over the days, and they add up to the same days. Any change of a day makes it newer than what was
-- booked, whichever of its sums it is in.
INSERT INTO billing_wallettotal AS t
    (tenant_id, unit, day, hour, project_id, "user", price_id, share_den, units, last_rated_id)
WITH offer AS NOT MATERIALIZED (
    SELECT f.*, p.currency AS unit FROM rate_offer f JOIN billing_price c ON c.id = f.price_id
    JOIN billing_planversion v ON v.id = c.version_id JOIN billing_plan p ON p.id = v.plan_id
    WHERE p.settles = 'wallet' AND f.verdict = 'charged'
), row AS MATERIALIZED (
    SELECT c.offer_id, c."user", c.share_den, c.share_num, c.units, c.service_from, c.service_to,
           d.timezone, d.day, d.hour, d.since, d.until
    FROM rate_change c JOIN offer o USING (offer_id)
    JOIN rate_hour d ON d.timezone = o.timezone AND d.hour = c.service_from / 3600
    WHERE c.counted AND d.since <= c.service_from AND d.until > c.service_from
), piece AS (
    SELECT offer_id, day, hour, "user", share_den, share_num, units FROM row WHERE service_to <= until
    UNION ALL
    SELECT r.offer_id, d.day, d.hour, r."user", r.share_den, r.share_num,
           units_within(r.units, r.service_from, r.service_to, d.since, d.until)
    FROM row r CROSS JOIN LATERAL (
        SELECT * FROM rate_hour d WHERE d.timezone = r.timezone
          AND d.since >= r.since AND d.since < r.service_to OFFSET 0
    ) d WHERE r.service_to > r.until
)
SELECT o.tenant_id, o.unit, p.day, p.hour, o.project_id, p."user", o.price_id, p.share_den, sum(p.units),
       (SELECT max(id) FROM rate_change)
FROM (
    SELECT offer_id, day, hour, "user", share_den, sum(units * share_num) AS units FROM piece GROUP BY 1, 2, 3, 4, 5
) p JOIN offer o USING (offer_id)
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8
ON CONFLICT ON CONSTRAINT wallet_total_is_kept_once DO UPDATE
SET units = t.units + excluded.units, last_rated_id = excluded.last_rated_id

-- name: WALLETS_DUE
INSERT INTO billing_walletbooking (tenant_id, rated_through, due)
SELECT DISTINCT o.tenant_id, 0, true FROM rate_change c JOIN rate_offer o USING (offer_id)
JOIN billing_price x ON x.id = o.price_id JOIN billing_planversion v ON v.id = x.version_id
JOIN billing_plan p ON p.id = v.plan_id
WHERE p.settles = 'wallet' AND o.verdict = 'charged' ORDER BY 1
ON CONFLICT (tenant_id) DO UPDATE SET due = true

-- name: HELD
-- Who held runs without GPUs: nothing may be rated of them.
INSERT INTO rate_held
SELECT u.record_id, s.tenant_id, max(s.span_id) FROM usage_input u JOIN rate_span s
  ON s.account_id = u.account_id AND s.since < u.finish AND s.until > u.started
WHERE u.gpus = 0 AND (u.suspended = 0 OR held_seconds(s.since, s.until, u.started, u.finish, u.suspended) > 0)
GROUP BY u.record_id, s.tenant_id

-- name: JOBS_GONE
-- Jobs that are another tenant's now. A run that holds nothing (waiting, or of zero length) belongs to who owned its
-- account when it was submitted.
-- A place in a table is that in some partition: what stands there in others is another job.
WITH k AS MATERIALIZED (
    SELECT r.ctid AS place, r.record_id, r.tenant_id FROM (
        SELECT record_id, tenant_id FROM rate_before
        EXCEPT SELECT w.record_id, o.tenant_id FROM rate_cut w JOIN rate_offer o USING (offer_id)
        EXCEPT SELECT record_id, tenant_id FROM rate_held
        EXCEPT SELECT u.record_id, n.tenant_id FROM usage_input u JOIN tenants_ownership n
            ON n.account_id = u.account_id
           AND (n.since IS NULL OR n.since <= to_timestamp(coalesce(u.started, u.submitted, 0)))
           AND (n.until IS NULL OR n.until > to_timestamp(coalesce(u.started, u.submitted, 0)))
        WHERE NOT EXISTS (SELECT 1 FROM rate_cut w WHERE w.record_id = u.record_id)
          AND NOT EXISTS (SELECT 1 FROM rate_held h WHERE h.record_id = u.record_id)
    ) gone CROSS JOIN LATERAL (
        SELECT r.ctid, r.record_id, r.tenant_id FROM billing_ratedjob r
        WHERE r.record_id = gone.record_id AND r.tenant_id = gone.tenant_id OFFSET 0
    ) r
), gone AS (
    DELETE FROM billing_ratedjob WHERE ctid = ANY (ARRAY(SELECT place FROM k))
        AND (record_id, tenant_id) IN (SELECT record_id, tenant_id FROM k)
    RETURNING tenant_id, record_id, started, coalesce(ended, seen_until, started) AS finish,
              coalesce(cost_price_id, 0) AS price_id, cost_units, gpu_units, meter
)
INSERT INTO rate_job SELECT tenant_id, record_id, started, finish, price_id, cost_units, gpu_units, true FROM gone
WHERE meter = ''

-- name: JOBS
-- Only jobs that show something new are written, be it a single one of ten thousand; where nothing was rated before, none
-- is looked up. What it is sorted by are the hours of its only price, which stay when the price comes to something else,
-- and of several prices the cost: that of a second of one unit, where a GPU's own fraction comes on top. Offers are
-- numbered in order of time, and so are spans: a job is shown in the project of its newest. One without GPUs is shown
-- though nothing of it may be charged.
WITH written AS (
INSERT INTO billing_ratedjob (tenant_id, record_id, project_id, cluster, account, job_id, name, "user", queue, qos,
    gpu_model, mig_profile, gpus, share_num, share_den, cpu_milli, memory_mib, gpu_memory_mib, billing, nodes, state,
    submitted, started, ended, seen_until, suspended, meter, quantity, shown_at, gpu_units, cost_price_id, cost_units,
    unpriced)
WITH cut AS NOT MATERIALIZED (
    SELECT record_id, offer_id, units, share_num, share_den FROM rate_cut WHERE NOT %(unrated)s
    UNION ALL
    SELECT record_id, offer_id, units, share_num, share_den FROM rate_change WHERE %(unrated)s
)
SELECT s.* FROM (
    SELECT o.tenant_id, u.record_id, o.project_id, u.cluster, u.account, u.job_id, u.name, u."user", u.queue, u.qos,
           u.gpu_model, u.mig_profile, u.gpus, u.share_num, u.share_den, u.cpu_milli, u.memory_mib, u.gpu_memory_mib,
           u.billing, u.nodes, u.state, u.submitted, u.started, u.ended, u.seen_until, u.suspended,
           u.meter, u.quantity, coalesce(u.started, u.submitted, 0) AS shown_at,
           o.gpu_units, o.price_id AS cost_price_id, o.cost::numeric(30, 6) AS cost_units, o.unpriced
    FROM (
        SELECT w.record_id, w.tenant_id, coalesce(s.project_id, f.project_id) AS project_id,
               coalesce(w.gpu_units, 0) AS gpu_units,
               CASE WHEN w.first_price = w.last_price THEN w.first_price END AS price_id,
               coalesce(CASE WHEN w.first_price = w.last_price
                             THEN w.price_units * w.share_num / (w.share_den * 3600::numeric) ELSE w.cost END, 0) AS cost,
               coalesce(w.unpriced, false) AS unpriced
        FROM (SELECT * FROM (
            SELECT c.record_id, f.tenant_id, max(c.offer_id) AS newest,
                   coalesce(sum(c.units) FILTER (WHERE f.resource = 'gpu'), 0) AS gpu_units,
                   coalesce(sum(CASE WHEN f.resource NOT IN ('cpu', 'memory', 'gpu-memory')
                                      AND (c.share_num, c.share_den) <> (1, 1)
                                     THEN c.units * c.share_num * f.second_cost / c.share_den
                                     ELSE c.units * f.second_cost END), 0) AS cost,
                   bool_or(f.verdict = 'unpriced') AS unpriced,
                   min(f.price_id) AS first_price, max(f.price_id) AS last_price,
                   sum(c.units) FILTER (WHERE f.price_id IS NOT NULL) AS price_units,
                   min(c.share_num) FILTER (WHERE f.price_id IS NOT NULL) AS share_num,
                   min(c.share_den) FILTER (WHERE f.price_id IS NOT NULL) AS share_den
            FROM cut c JOIN rate_offer f USING (offer_id)
            GROUP BY c.record_id, f.tenant_id
        ) c FULL JOIN (SELECT record_id, tenant_id, newest AS newest_span FROM rate_held) h USING (record_id, tenant_id)
        ) w LEFT JOIN rate_offer f ON f.offer_id = w.newest LEFT JOIN rate_span s ON s.span_id = w.newest_span
        UNION ALL
        SELECT u.record_id, n.tenant_id, n.project_id, 0, NULL, 0, false FROM usage_input u JOIN tenants_ownership n
            ON n.account_id = u.account_id
           AND (n.since IS NULL OR n.since <= to_timestamp(coalesce(u.started, u.submitted, 0)))
           AND (n.until IS NULL OR n.until > to_timestamp(coalesce(u.started, u.submitted, 0)))
        WHERE NOT EXISTS (SELECT 1 FROM cut w WHERE w.record_id = u.record_id)
          AND NOT EXISTS (SELECT 1 FROM rate_held h WHERE h.record_id = u.record_id)
    ) o JOIN usage_input u ON u.record_id = o.record_id
) s LEFT JOIN LATERAL (
    SELECT * FROM billing_ratedjob r
    WHERE NOT %(unrated)s AND r.record_id = s.record_id AND r.tenant_id = s.tenant_id OFFSET 0
) k ON true
WHERE %(unrated)s OR
    (s.project_id, s.cluster, s.account, s.job_id, s.name, s."user", s.queue, s.qos, s.gpu_model, s.mig_profile, s.gpus,
     s.share_num, s.share_den, s.cpu_milli, s.memory_mib, s.gpu_memory_mib, s.billing, s.nodes, s.state, s.submitted,
     s.started, s.ended, s.seen_until, s.suspended, s.meter, s.quantity, s.shown_at, s.gpu_units, s.cost_price_id, s.cost_units,
     s.unpriced)
    IS DISTINCT FROM
    (k.project_id, k.cluster, k.account, k.job_id, k.name, k."user", k.queue, k.qos, k.gpu_model, k.mig_profile, k.gpus,
     k.share_num, k.share_den, k.cpu_milli, k.memory_mib, k.gpu_memory_mib, k.billing, k.nodes, k.state, k.submitted,
     k.started, k.ended, k.seen_until, k.suspended, k.meter, k.quantity, k.shown_at, k.gpu_units, k.cost_price_id, k.cost_units,
     k.unpriced)
ORDER BY s.record_id
ON CONFLICT (record_id, tenant_id) DO UPDATE SET
    project_id = excluded.project_id, cluster = excluded.cluster, account = excluded.account, job_id = excluded.job_id,
    name = excluded.name, "user" = excluded."user", queue = excluded.queue, qos = excluded.qos,
    gpu_model = excluded.gpu_model, mig_profile = excluded.mig_profile, gpus = excluded.gpus,
    share_num = excluded.share_num, share_den = excluded.share_den, cpu_milli = excluded.cpu_milli,
    memory_mib = excluded.memory_mib, gpu_memory_mib = excluded.gpu_memory_mib, billing = excluded.billing,
    nodes = excluded.nodes, state = excluded.state, submitted = excluded.submitted, started = excluded.started,
    ended = excluded.ended, seen_until = excluded.seen_until, suspended = excluded.suspended,
    meter = excluded.meter, quantity = excluded.quantity, shown_at = excluded.shown_at, gpu_units = excluded.gpu_units,
    cost_price_id = excluded.cost_price_id, cost_units = excluded.cost_units, unpriced = excluded.unpriced
RETURNING tenant_id, record_id, started, coalesce(ended, seen_until, started) AS finish,
          coalesce(cost_price_id, 0) AS price_id, cost_units, gpu_units, meter
)
INSERT INTO rate_job SELECT tenant_id, record_id, started, finish, price_id, cost_units, gpu_units, false FROM written
WHERE meter = ''

-- name: QUOTAS_CHANGED
-- That the figures of these tenants' quotas are others now, and of those who pay for them where a quota counts that. Most
-- sites have none: then rating does nothing of this.
INSERT INTO billing_quotachange (tenant_id)
SELECT o.tenant_id FROM rate_offer o JOIN billing_quotareview q ON q.tenant_id = o.tenant_id
UNION
SELECT q.tenant_id FROM billing_quota q JOIN billing_payer y ON y.payer_id = q.tenant_id
JOIN rate_offer o ON o.tenant_id = y.tenant_id WHERE q.with_paid AND q.ended_at IS NULL
ORDER BY 1
