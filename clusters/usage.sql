-- Filling `usage_input`, the table by which everything above reads usage.

-- name: LOAD_TOUCHED
-- What is new is in `usage_input` already; of one key twice in a batch, as it was before the second time.
ANALYZE usage_touched;
WITH renewed AS (
    DELETE FROM usage_input i USING (SELECT DISTINCT record_id FROM usage_touched) t
    WHERE i.record_id = t.record_id RETURNING i.record_id
)
INSERT INTO usage_input
SELECT u.*, n.record_id IS NOT NULL
FROM (SELECT DISTINCT record_id FROM usage_touched) t
CROSS JOIN LATERAL (SELECT * FROM clusters_run r WHERE r.record_id = t.record_id OFFSET 0) u
LEFT JOIN renewed n ON n.record_id = u.record_id

-- name: LOAD_UTILISED
INSERT INTO usage_input
SELECT u.*, false
FROM (SELECT DISTINCT record_id FROM utilisation_changed) t
CROSS JOIN LATERAL (SELECT * FROM clusters_run r WHERE r.record_id = t.record_id OFFSET 0) u

-- name: LOAD_SLICE
INSERT INTO usage_input
SELECT u.*, false FROM clusters_run u
WHERE u.record_id > %(after)s AND u.record_id <= %(last)s AND u.account_id = ANY (%(accounts)s)

-- name: LOAD_RECORDS
INSERT INTO usage_input SELECT u.*, false FROM clusters_run u WHERE u.record_id = ANY (%(records)s)

-- name: LOAD_WINDOW
INSERT INTO usage_input
SELECT u.*, false FROM clusters_run u
WHERE u.record_id > %(after)s AND u.record_id <= %(last)s AND u.account_id = ANY (%(accounts)s)
  AND u.started < %(until)s AND u.finish > %(since)s
UNION ALL (
    -- Should somebody load the month back meanwhile, the tables have it for this statement, and else this.
    SELECT DISTINCT ON (f.record_id) f.* FROM usage_filed f
    WHERE f.record_id > %(after)s AND f.record_id <= %(last)s
      AND f.record_id >> 40 IN (SELECT month_number(extract(epoch FROM m)::bigint) FROM billing_dropped_months() m)
      AND f.record_id NOT IN (SELECT billing_late_records())
    ORDER BY f.record_id
)

-- name: LOAD_FEW
-- No more than that many: whether they were all is seen by the number.
INSERT INTO usage_input
SELECT u.*, false FROM clusters_run u WHERE u.account_id = ANY (%(accounts)s) LIMIT %(most)s

-- name: SUPPOSE
-- A run that never was, as the last record there can be.
INSERT INTO usage_input
SELECT 9223372036854775807 AS record_id, 1 AS revision, c.id AS cluster_id, c.name AS cluster, a.id AS account_id,
       a.name AS account, %(job_id)s AS job_id, %(name)s AS name, %(user)s AS "user", %(queue)s AS queue, %(qos)s AS qos,
       %(priority_class)s AS priority_class, %(gpus)s::int AS gpus, %(gpu_model)s AS gpu_model,
       %(mig_profile)s AS mig_profile, %(share_num)s::int AS share_num, %(share_den)s::int AS share_den,
       %(cpu_milli)s::bigint AS cpu_milli, %(memory_mib)s::bigint AS memory_mib, %(nodes)s::int AS nodes,
       %(state)s AS state, %(submitted)s::bigint AS submitted, %(started)s::bigint AS started,
       %(ended)s::bigint AS ended, %(seen_until)s::bigint AS seen_until,
       coalesce(%(ended)s::bigint, %(seen_until)s::bigint) AS finish, %(suspended)s::bigint AS suspended,
       %(gpu_memory_mib)s::bigint AS gpu_memory_mib, %(billing)s::bigint AS billing, '' AS meter,
       NULL::bigint AS quantity, true AS fresh
FROM clusters_account a JOIN clusters_cluster c ON c.id = a.cluster_id WHERE a.id = %(account)s

-- name: ANALYZE_INPUT
-- Statistics are of what rating and proof join and filter by: of all columns they take longer than the rows. What
-- prices select by rating adds, where some do.
ANALYZE usage_input (record_id, fresh, account_id, cluster)

-- name: BORDERS
-- In one pass: read slice by slice, all that is left would be read and sorted for each.
SELECT id FROM (
    SELECT id, row_number() OVER (ORDER BY id) AS place FROM clusters_usagerecord
    WHERE account_id = ANY (%(accounts)s) AND id > %(after)s AND id <= %(last)s
) record WHERE mod(place, %(size)s) = 0 ORDER BY id

-- name: BORDER
-- The last of the next slice, and whether there is one behind it: months are read in turn, and none behind that one.
SELECT id FROM clusters_usagerecord WHERE account_id = ANY (%(accounts)s) AND id > %(after)s
ORDER BY id OFFSET %(before_last)s LIMIT 2

-- name: BORDERS_OF_WINDOW
SELECT id FROM (
    SELECT id, row_number() OVER (ORDER BY id) AS place FROM (
        SELECT id FROM clusters_usagerecord
        WHERE account_id = ANY (%(accounts)s) AND started < %(until)s AND coalesce(ended, seen_until) > %(since)s
        UNION SELECT record_id FROM usage_filed
    ) held
) record WHERE mod(place, %(size)s) = 0 ORDER BY id

-- name: COUNT_WINDOW
SELECT count(*) FROM clusters_usagerecord
WHERE account_id = ANY (%(accounts)s) AND started < %(until)s AND coalesce(ended, seen_until) > %(since)s

-- name: MONTHS
-- The months that are attached and have records, or are in %(proved)s, each with the numbers (after, last] of its records.
SELECT month, after, after + (1::bigint << 40)
FROM (
    SELECT month, (month_number(extract(epoch FROM month)::bigint)::bigint << 40) - 1 AS after
    FROM (
        SELECT to_date(right(c.relname, 7), 'YYYY_MM') AS month
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'clusters_usagerecord'::regclass
    ) attached
) numbered
WHERE month = ANY(%(proved)s::date[])
OR EXISTS (SELECT FROM clusters_usagerecord u WHERE u.id > after AND u.id <= after + (1::bigint << 40))
ORDER BY month

-- name: IDS
-- The numbers (after, last] that records of each month have, whether there are any or not.
SELECT month, after, after + (1::bigint << 40) FROM (
    SELECT month, (month_number(extract(epoch FROM month)::bigint)::bigint << 40) - 1 AS after
    FROM unnest(%(months)s::date[]) AS m (month)
) numbered

-- name: CENSUS
-- How many of a month's records there are with a number up to `through`, the newest, and when any was last written.
SELECT count(*) FILTER (WHERE id <= %(through)s), count(*), max(id), max(last_seen) FROM clusters_usagerecord
WHERE id > %(after)s AND id <= %(last)s

-- name: ORPHANS
-- Records whose account, or cluster of their account, there is not: no foreign key watches over them.
SELECT format('job %%s, account number %%s, cluster number %%s', u.job_id, u.account_id, u.cluster_id)
FROM clusters_usagerecord u
LEFT JOIN clusters_account a ON a.id = u.account_id AND a.cluster_id = u.cluster_id
WHERE a.id IS NULL AND u.id > %(after)s AND u.id <= %(last)s LIMIT %(most)s

-- name: UNCLAIMED
-- What accounts held outside of all claims, each of which is an account and [since, until). Accounts are an array, by which few
-- records are looked up: of a subquery the planner expects half of all, and reads each record there is.
WITH claim AS (
    SELECT * FROM unnest(%(accounts)s::bigint[], %(since)s::bigint[], %(until)s::bigint[])
        AS c (account_id, since, until)
), used AS (
    SELECT *, usage_finish(meter, started, ended, seen_until) AS finish FROM clusters_usagerecord
    WHERE account_id = ANY (ARRAY(SELECT id FROM clusters_account WHERE id <> ALL(%(whole)s))) AND started >= %(begun)s
), gap AS (
    SELECT u.account_id, u.share_den, u.gpus::numeric * u.share_num AS gpus, u.cpu_milli, u.started, u.finish, u.meter,
           u.quantity, u.finish - u.started - u.suspended - coalesce((
               SELECT sum(held_seconds(c.since, c.until, u.started, u.finish, u.suspended)) FROM claim c
               WHERE c.account_id = u.account_id AND c.since < u.finish AND c.until > u.started), 0) AS seconds
    FROM used u
)
SELECT c.name, a.name, a.id, count(*) FILTER (WHERE g.meter = ''), g.share_den, sum(g.gpus * g.seconds),
       sum(g.cpu_milli::numeric * g.seconds), min(g.started), max(g.finish), g.meter, coalesce(sum(g.quantity), 0)
FROM gap g JOIN clusters_account a ON a.id = g.account_id JOIN clusters_cluster c ON c.id = a.cluster_id
WHERE g.seconds > 0
GROUP BY c.name, a.name, a.id, g.share_den, g.meter ORDER BY c.name, a.name, a.id, g.meter
