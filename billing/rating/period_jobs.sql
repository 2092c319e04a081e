-- What is kept of the jobs of each billing period, apart for each price that jobs have alone (0: several, or none): how many
-- started in it, and the most expensive that ran in it.
--
-- Of those some are kept, and from time to time cut down to fewer: the first that is cut off is the floor. Whoever is not
-- kept costs no more than it. A run that grows is written here only where it passes the floor. Among jobs of one price the
-- order stays, whatever the price is corrected to.

-- name: PERIODS
-- Those that the jobs just written run in, or did before.
INSERT INTO rate_period
SELECT b.tenant_id, b.id, extract(epoch FROM b.start)::bigint, extract(epoch FROM b."end")::bigint
FROM (
    SELECT tenant_id, min(started) AS started, max(greatest(finish - 1, started)) AS last FROM (
        SELECT tenant_id, started, finish FROM rate_job
        UNION ALL SELECT b.tenant_id, b.started, b.finish FROM rate_job j JOIN rate_before b USING (tenant_id, record_id)
    ) each GROUP BY tenant_id
) r JOIN billing_billingperiod b ON b.tenant_id = r.tenant_id
 AND b.start <= to_timestamp(r.last) AND b."end" > to_timestamp(r.started)

-- name: STARTED
INSERT INTO billing_periodjobs AS k (tenant_id, period_id, price_id, started)
SELECT p.tenant_id, p.period_id, s.price_id, sum(s.jobs) FROM (
    SELECT tenant_id, price_id, started, 1 AS jobs FROM rate_job WHERE NOT gone
    UNION ALL
    SELECT b.tenant_id, b.price_id, b.started, -1 FROM rate_job j JOIN rate_before b USING (tenant_id, record_id)
) s JOIN rate_period p ON p.tenant_id = s.tenant_id AND p.since <= s.started AND p.until > s.started
GROUP BY p.tenant_id, p.period_id, s.price_id HAVING sum(s.jobs) <> 0 ORDER BY p.tenant_id, p.period_id, s.price_id
ON CONFLICT (tenant_id, period_id, price_id) DO UPDATE SET started = k.started + excluded.started

-- name: LESS
-- Kept jobs that are gone, cost less, have another price or ran in fewer periods than before: those that no longer belong
-- there go, and what is left beside them is in doubt.
WITH less AS MATERIALIZED (
    SELECT b.tenant_id, b.record_id, b.started AS began, coalesce(b.finish, b.started) AS until, j.started, j.finish,
           j.gone OR j.price_id <> b.price_id AS leaves, b.price_id
    FROM rate_job j JOIN rate_before b USING (tenant_id, record_id)
    WHERE b.started IS NOT NULL
      AND (j.gone OR j.price_id <> b.price_id OR (j.cost_units, j.gpu_units) < (b.cost_units, b.gpu_units)
           OR j.started IS DISTINCT FROM b.started OR j.finish < b.finish)
), kept AS MATERIALIZED (
    SELECT k.place, p.tenant_id, p.period_id, l.price_id,
           l.leaves OR job_ran_in(l.started, l.finish, p.since, p.until) IS NOT TRUE AS leaves
    FROM less l JOIN rate_period p ON p.tenant_id = l.tenant_id AND job_ran_in(l.began, l.until, p.since, p.until)
    CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM billing_periodtopjob t
        WHERE t.tenant_id = p.tenant_id AND t.period_id = p.period_id AND t.record_id = l.record_id OFFSET 0
    ) k
), gone AS (
    DELETE FROM billing_periodtopjob WHERE ctid = ANY (ARRAY(SELECT place FROM kept WHERE leaves))
)
INSERT INTO rate_doubt SELECT DISTINCT tenant_id, period_id, price_id FROM kept

-- name: TOP
-- Those that cost more than the floor.
INSERT INTO billing_periodtopjob (tenant_id, period_id, record_id, price_id)
SELECT tenant_id, period_id, record_id, price_id FROM (
    SELECT p.tenant_id, p.period_id, j.record_id, j.price_id, row_number() OVER (
        PARTITION BY p.tenant_id, p.period_id, j.price_id
        ORDER BY j.cost_units DESC, j.gpu_units DESC, j.record_id DESC) AS place
    FROM rate_job j
    JOIN rate_period p ON p.tenant_id = j.tenant_id AND job_ran_in(j.started, j.finish, p.since, p.until)
    LEFT JOIN billing_periodjobs k
      ON k.tenant_id = p.tenant_id AND k.period_id = p.period_id AND k.price_id = j.price_id
    WHERE NOT j.gone AND (k.floor_id IS NULL OR (j.cost_units, j.gpu_units, j.record_id)
                                                > (k.floor_cost, k.floor_units, k.floor_id))
) job WHERE place <= %(most)s ORDER BY tenant_id, period_id, record_id
ON CONFLICT (tenant_id, period_id, record_id) DO NOTHING

-- name: CUT
-- Where as many are kept as may be: down to `kept`, and the next one is the floor.
WITH job AS MATERIALIZED (
    SELECT p.tenant_id, p.period_id, g.price_id, k.place, j.record_id, j.cost_units, j.gpu_units, row_number() OVER (
        PARTITION BY p.tenant_id, p.period_id, g.price_id
        ORDER BY j.cost_units DESC, j.gpu_units DESC, j.record_id DESC) AS number
    FROM rate_period p CROSS JOIN LATERAL (
        SELECT t.price_id FROM billing_periodtopjob t
        WHERE t.tenant_id = p.tenant_id AND t.period_id = p.period_id
        GROUP BY t.price_id HAVING count(*) >= %(most)s OFFSET 0
    ) g CROSS JOIN LATERAL (
        SELECT t.ctid AS place, t.record_id FROM billing_periodtopjob t
        WHERE t.tenant_id = p.tenant_id AND t.period_id = p.period_id AND t.price_id = g.price_id OFFSET 0
    ) k CROSS JOIN LATERAL (
        SELECT r.record_id, r.cost_units, r.gpu_units FROM billing_ratedjob r
        WHERE r.record_id = k.record_id AND r.tenant_id = p.tenant_id OFFSET 0
    ) j
), gone AS (
    DELETE FROM billing_periodtopjob WHERE ctid = ANY (ARRAY(SELECT place FROM job WHERE number > %(kept)s))
)
INSERT INTO billing_periodjobs AS k (tenant_id, period_id, price_id, floor_cost, floor_units, floor_id)
SELECT tenant_id, period_id, price_id, cost_units, gpu_units, record_id FROM job WHERE number = %(kept)s + 1
ORDER BY tenant_id, period_id, price_id
ON CONFLICT (tenant_id, period_id, price_id) DO UPDATE
SET floor_cost = excluded.floor_cost, floor_units = excluded.floor_units, floor_id = excluded.floor_id
WHERE k.floor_id IS NULL OR (excluded.floor_cost, excluded.floor_units, excluded.floor_id)
                            > (k.floor_cost, k.floor_units, k.floor_id)

-- name: ALL_IN_DOUBT
INSERT INTO rate_period
SELECT tenant_id, id, extract(epoch FROM start)::bigint, extract(epoch FROM "end")::bigint FROM billing_billingperiod
WHERE id = ANY (%(periods)s);
INSERT INTO rate_doubt
SELECT tenant_id, period_id, price_id FROM billing_periodjobs WHERE period_id = ANY (%(periods)s)

-- name: IN_FILES
-- Of those in doubt the ones that have a floor and jobs in files alone, and whether fewer than a page shows may be left above
-- it: which others cost more, no table says then. A kept job in files is taken to be above a floor that was set by one in files,
-- too: one that had shrunk below it before its month was dropped is counted, so that a list may be short, never wrong.
DELETE FROM rate_doubt d USING billing_periodjobs f
WHERE (f.tenant_id, f.period_id, f.price_id) = (d.tenant_id, d.period_id, d.price_id) AND f.floor_id IS NOT NULL
  AND EXISTS (SELECT FROM billing_dropped_of_periods(ARRAY[d.period_id])) RETURNING d.period_id, (
    SELECT count(*) FROM billing_periodtopjob t LEFT JOIN LATERAL (
        SELECT r.cost_units, r.gpu_units, r.record_id FROM billing_ratedjob r
        WHERE r.record_id = t.record_id AND r.tenant_id = t.tenant_id OFFSET 0
    ) j ON true
    WHERE t.tenant_id = d.tenant_id AND t.period_id = d.period_id AND t.price_id = d.price_id
      AND CASE WHEN j.record_id IS NULL THEN NOT EXISTS (
              SELECT FROM billing_ratedjob r WHERE r.record_id = f.floor_id AND r.tenant_id = d.tenant_id)
          ELSE (j.cost_units, j.gpu_units, j.record_id) > (f.floor_cost, f.floor_units, f.floor_id) END
  ) < %(shown)s

-- name: ANEW
-- Where fewer than a page shows are left above the floor, all jobs of the period are looked through; where `shown` is more
-- than there can be, also of periods without a floor.
WITH short AS MATERIALIZED (
    SELECT p.*, d.price_id FROM rate_doubt d JOIN rate_period p USING (tenant_id, period_id)
    JOIN billing_periodjobs f
      ON (f.tenant_id, f.period_id, f.price_id) = (d.tenant_id, d.period_id, d.price_id)
     AND (f.floor_id IS NOT NULL OR %(shown)s = 2147483647)
    WHERE (
        SELECT count(*) FROM billing_periodtopjob t CROSS JOIN LATERAL (
            SELECT r.cost_units, r.gpu_units, r.record_id FROM billing_ratedjob r
            WHERE r.record_id = t.record_id AND r.tenant_id = t.tenant_id OFFSET 0
        ) j WHERE t.tenant_id = d.tenant_id AND t.period_id = d.period_id AND t.price_id = d.price_id
              AND (j.cost_units, j.gpu_units, j.record_id) > (f.floor_cost, f.floor_units, f.floor_id)
    ) < %(shown)s
), job AS MATERIALIZED (
    SELECT s.tenant_id, s.period_id, s.price_id, j.* FROM short s CROSS JOIN LATERAL (
        SELECT r.record_id, r.cost_units, r.gpu_units, row_number() OVER (
                   ORDER BY r.cost_units DESC, r.gpu_units DESC, r.record_id DESC) AS number
        FROM billing_ratedjob r
        WHERE r.tenant_id = s.tenant_id AND r.meter = '' AND r.shown_at < s.until AND r.shown_at >= s.since - job_look_back()
          AND coalesce(r.cost_price_id, 0) = s.price_id
          AND job_ran_in(r.started, coalesce(r.ended, r.seen_until, r.started), s.since, s.until)
        ORDER BY r.cost_units DESC, r.gpu_units DESC, r.record_id DESC LIMIT %(kept)s + 1
    ) j
), gone AS (
    DELETE FROM billing_periodtopjob WHERE ctid = ANY (ARRAY(
        SELECT k.place FROM short s CROSS JOIN LATERAL (
            SELECT t.ctid AS place, t.record_id FROM billing_periodtopjob t
            WHERE t.tenant_id = s.tenant_id AND t.period_id = s.period_id AND t.price_id = s.price_id OFFSET 0
        ) k LEFT JOIN job j ON (j.tenant_id, j.period_id, j.record_id) = (s.tenant_id, s.period_id, k.record_id)
        WHERE j.number IS NULL OR j.number > %(kept)s
    ))
), added AS (
    INSERT INTO billing_periodtopjob (tenant_id, period_id, record_id, price_id)
    SELECT tenant_id, period_id, record_id, price_id FROM job WHERE number <= %(kept)s ORDER BY 1, 2, 3
    ON CONFLICT (tenant_id, period_id, record_id) DO NOTHING
)
INSERT INTO billing_periodjobs (tenant_id, period_id, price_id, floor_cost, floor_units, floor_id)
SELECT s.tenant_id, s.period_id, s.price_id, j.cost_units, j.gpu_units, j.record_id FROM short s
LEFT JOIN job j ON (j.tenant_id, j.period_id, j.price_id) = (s.tenant_id, s.period_id, s.price_id)
               AND j.number = %(kept)s + 1
ORDER BY s.tenant_id, s.period_id, s.price_id
ON CONFLICT (tenant_id, period_id, price_id) DO UPDATE
SET floor_cost = excluded.floor_cost, floor_units = excluded.floor_units, floor_id = excluded.floor_id
