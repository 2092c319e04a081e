-- A report of GPU efficiency: each statement reads every rated row, run and hour once. `by` is one of tenant, project,
-- namespace, pod, model, user; a group has a key and, of projects, namespaces and pods, a subkey, as text. Those whose
-- names end in OWN run inside a tenant's scope, which shows nothing of others.

-- name: MORE_MEMORY
-- A period is sorted and joined as a whole.
SELECT set_config('work_mem', '64MB', true)

-- name: SUMS
-- (part, key, subkey, verdict, currency, price, share_den, source, metric, a, b) of a period. The part `gpu` has in `a`
-- units × seconds × share_num of GPUs, `other` of anything else that is charged; `busy` the same of what devices worked,
-- and in `b` of what was covered; `jobs` counts those that held GPUs, and `all` them over all groups. Of pods the `limit`
-- that cost most are groups, the others are one. An hour that a stretch cuts gives by its part of the seconds that the run
-- held in it. `by_use`: where the seconds of a stretch are priced by use, how busy it was counts once, and without a price.
WITH piece AS MATERIALIZED (
    SELECT p.*, CASE %(by)s WHEN 'tenant' THEN p.tenant_id::text WHEN 'project' THEN p.tenant_id::text
                            WHEN 'namespace' THEN p.cluster WHEN 'model' THEN p.gpu_model WHEN 'user' THEN p."user"
                END AS key,
           CASE %(by)s WHEN 'project' THEN p.project_id::text WHEN 'namespace' THEN p.account END AS subkey
    FROM report_pieces(%(cluster)s, %(tenant)s, %(since)s, %(until)s) p
), first AS MATERIALIZED (
    SELECT record_id FROM piece WHERE %(by)s = 'pod' GROUP BY record_id
    ORDER BY coalesce(sum(held * share_num * unit_price / share_den), 0) DESC,
             sum(held * share_num / share_den) FILTER (WHERE gpu) DESC NULLS LAST, record_id LIMIT %(limit)s
), shown AS NOT MATERIALIZED (
    SELECT p.record_id, p.gpu, p.verdict, p.currency, p.price_id, p.share_num, p.share_den, p.since, p.until, p.held,
           p.gpus, p.started, p.finish, p.suspended,
           CASE WHEN %(by)s <> 'pod' THEN p.key WHEN f.record_id IS NOT NULL THEN p.tenant_id::text END AS key,
           CASE WHEN %(by)s <> 'pod' THEN p.subkey ELSE f.record_id::text END AS subkey
    FROM piece p LEFT JOIN first f ON f.record_id = p.record_id
), stretch AS NOT MATERIALIZED (
    SELECT record_id, key, subkey, verdict, currency, share_num, share_den, since, until, gpus, started, finish,
           suspended,
           CASE WHEN NOT %(by_use)s OR count(*) OVER same = 1 THEN price_id END AS price_id,
           CASE WHEN %(by_use)s THEN row_number() OVER (PARTITION BY record_id, since, until ORDER BY price_id)
                ELSE 1 END AS place,
           CASE WHEN %(by_use)s THEN min(verdict) OVER same = max(verdict) OVER same ELSE true END AS alike
    FROM shown WHERE gpu WINDOW same AS (PARTITION BY record_id, since, until)
)
SELECT CASE WHEN gpu THEN 'gpu' ELSE 'other' END, key, subkey, verdict, currency, price_id, share_den, NULL, NULL,
       sum(held * share_num), NULL
FROM shown GROUP BY key, subkey, verdict, currency, price_id, share_den, gpu
UNION ALL
SELECT 'busy', s.key, s.subkey, s.verdict, s.currency, s.price_id, s.share_den, h.source, h.metric,
       sum(s.share_num * CASE WHEN x.begins = 0 AND x.ends = h.covered THEN h.busy
                              ELSE trunc(h.busy * x.ends / h.covered, 9) - trunc(h.busy * x.begins / h.covered, 9) END),
       sum(s.share_num * (x.ends - x.begins))
FROM stretch s JOIN clusters_utilisationhour h
  ON h.record_id = s.record_id AND h.hour < s.until AND h.hour > s.since - 3600
CROSS JOIN LATERAL covered_within(
    h.hour, h.covered, s.gpus, s.started, s.finish, s.suspended, s.since, s.until) x
WHERE s.place = 1 AND s.alike AND h.covered > 0
GROUP BY s.key, s.subkey, s.verdict, s.currency, s.price_id, s.share_den, h.source, h.metric
UNION ALL
SELECT 'jobs', key, subkey, verdict, currency, NULL, NULL, NULL, NULL, count(DISTINCT record_id), NULL
FROM shown WHERE gpu GROUP BY key, subkey, verdict, currency
UNION ALL
SELECT 'all', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, count(DISTINCT record_id), NULL FROM piece WHERE gpu

-- name: SUMS_OWN
WITH piece AS MATERIALIZED (
    SELECT p.*, CASE %(by)s WHEN 'tenant' THEN p.tenant_id::text WHEN 'project' THEN p.tenant_id::text
                            WHEN 'namespace' THEN p.cluster WHEN 'model' THEN p.gpu_model WHEN 'user' THEN p."user"
                END AS key,
           CASE %(by)s WHEN 'project' THEN p.project_id::text WHEN 'namespace' THEN p.account END AS subkey
    FROM report_own_pieces(%(tenant)s, %(since)s, %(until)s) p
), first AS MATERIALIZED (
    SELECT record_id FROM piece WHERE %(by)s = 'pod' GROUP BY record_id
    ORDER BY coalesce(sum(held * share_num * unit_price / share_den), 0) DESC,
             sum(held * share_num / share_den) FILTER (WHERE gpu) DESC NULLS LAST, record_id LIMIT %(limit)s
), shown AS NOT MATERIALIZED (
    SELECT p.record_id, p.gpu, p.verdict, p.currency, p.price_id, p.share_num, p.share_den, p.since, p.until, p.held,
           p.gpus, p.started, p.finish, p.suspended,
           CASE WHEN %(by)s <> 'pod' THEN p.key WHEN f.record_id IS NOT NULL THEN p.tenant_id::text END AS key,
           CASE WHEN %(by)s <> 'pod' THEN p.subkey ELSE f.record_id::text END AS subkey
    FROM piece p LEFT JOIN first f ON f.record_id = p.record_id
), stretch AS NOT MATERIALIZED (
    SELECT record_id, key, subkey, verdict, currency, share_num, share_den, since, until, gpus, started, finish,
           suspended,
           CASE WHEN NOT %(by_use)s OR count(*) OVER same = 1 THEN price_id END AS price_id,
           CASE WHEN %(by_use)s THEN row_number() OVER (PARTITION BY record_id, since, until ORDER BY price_id)
                ELSE 1 END AS place,
           CASE WHEN %(by_use)s THEN min(verdict) OVER same = max(verdict) OVER same ELSE true END AS alike
    FROM shown WHERE gpu WINDOW same AS (PARTITION BY record_id, since, until)
)
SELECT CASE WHEN gpu THEN 'gpu' ELSE 'other' END, key, subkey, verdict, currency, price_id, share_den, NULL, NULL,
       sum(held * share_num), NULL
FROM shown GROUP BY key, subkey, verdict, currency, price_id, share_den, gpu
UNION ALL
SELECT 'busy', s.key, s.subkey, s.verdict, s.currency, s.price_id, s.share_den, h.source, h.metric,
       sum(s.share_num * CASE WHEN x.begins = 0 AND x.ends = h.covered THEN h.busy
                              ELSE trunc(h.busy * x.ends / h.covered, 9) - trunc(h.busy * x.begins / h.covered, 9) END),
       sum(s.share_num * (x.ends - x.begins))
FROM stretch s CROSS JOIN LATERAL (
    SELECT * FROM billing_ownhour v
    WHERE v.record_id = s.record_id AND v.hour < s.until AND v.hour > s.since - 3600 OFFSET 0
) h
CROSS JOIN LATERAL covered_within(
    h.hour, h.covered, s.gpus, s.started, s.finish, s.suspended, s.since, s.until) x
WHERE s.place = 1 AND s.alike AND h.covered > 0
GROUP BY s.key, s.subkey, s.verdict, s.currency, s.price_id, s.share_den, h.source, h.metric
UNION ALL
SELECT 'jobs', key, subkey, verdict, currency, NULL, NULL, NULL, NULL, count(DISTINCT record_id), NULL
FROM shown WHERE gpu GROUP BY key, subkey, verdict, currency
UNION ALL
SELECT 'all', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, count(DISTINCT record_id), NULL FROM piece WHERE gpu

-- name: TOP_JOBS
-- (key, subkey, currency, record, place, price, share_den, units × seconds × share_num) of a group's most expensive jobs.
WITH piece AS MATERIALIZED (
    SELECT p.*, CASE %(by)s WHEN 'tenant' THEN p.tenant_id::text WHEN 'project' THEN p.tenant_id::text
                            WHEN 'namespace' THEN p.cluster WHEN 'model' THEN p.gpu_model WHEN 'user' THEN p."user"
                END AS key,
           CASE %(by)s WHEN 'project' THEN p.project_id::text WHEN 'namespace' THEN p.account END AS subkey
    FROM report_pieces(%(cluster)s, %(tenant)s, %(since)s, %(until)s) p
), ranked AS (
    SELECT key, subkey, currency, record_id,
           row_number() OVER (PARTITION BY key, subkey, currency
                              ORDER BY sum(held * share_num * unit_price / share_den) DESC, record_id) AS place
    FROM piece WHERE gpu AND verdict = 'charged' GROUP BY key, subkey, currency, record_id
)
SELECT k.key, k.subkey, k.currency, k.record_id, k.place, p.price_id, p.share_den, sum(p.held * p.share_num)
FROM ranked k JOIN piece p ON p.record_id = k.record_id AND p.currency = k.currency
    AND p.key IS NOT DISTINCT FROM k.key AND p.subkey IS NOT DISTINCT FROM k.subkey
WHERE k.place <= %(top_jobs)s AND p.gpu AND p.verdict = 'charged'
GROUP BY k.key, k.subkey, k.currency, k.record_id, k.place, p.price_id, p.share_den
ORDER BY k.place

-- name: TOP_JOBS_OWN
WITH piece AS MATERIALIZED (
    SELECT p.*, CASE %(by)s WHEN 'tenant' THEN p.tenant_id::text WHEN 'project' THEN p.tenant_id::text
                            WHEN 'namespace' THEN p.cluster WHEN 'model' THEN p.gpu_model WHEN 'user' THEN p."user"
                END AS key,
           CASE %(by)s WHEN 'project' THEN p.project_id::text WHEN 'namespace' THEN p.account END AS subkey
    FROM report_own_pieces(%(tenant)s, %(since)s, %(until)s) p
), ranked AS (
    SELECT key, subkey, currency, record_id,
           row_number() OVER (PARTITION BY key, subkey, currency
                              ORDER BY sum(held * share_num * unit_price / share_den) DESC, record_id) AS place
    FROM piece WHERE gpu AND verdict = 'charged' GROUP BY key, subkey, currency, record_id
)
SELECT k.key, k.subkey, k.currency, k.record_id, k.place, p.price_id, p.share_den, sum(p.held * p.share_num)
FROM ranked k JOIN piece p ON p.record_id = k.record_id AND p.currency = k.currency
    AND p.key IS NOT DISTINCT FROM k.key AND p.subkey IS NOT DISTINCT FROM k.subkey
WHERE k.place <= %(top_jobs)s AND p.gpu AND p.verdict = 'charged'
GROUP BY k.key, k.subkey, k.currency, k.record_id, k.place, p.price_id, p.share_den
ORDER BY k.place

-- name: RUNS
-- (record, cluster, account, user, job, name, model) of runs.
SELECT record_id, cluster, account, "user", job_id, name, gpu_model FROM clusters_run
WHERE record_id = ANY (%(records)s)

-- name: RUNS_OWN
SELECT record_id, cluster, account, "user", job_id, name, gpu_model FROM billing_ownrun
WHERE record_id = ANY (%(records)s)
