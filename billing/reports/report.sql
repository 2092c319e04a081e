-- A report of GPU efficiency: each statement reads every rated row, run and hour once, for several groupings (`bys`) at
-- once: by tenant, project, namespace, pod, model, user. Those whose names end in OWN run inside a tenant's scope, which shows
-- nothing of others.

-- name: MORE_MEMORY
-- A period is sorted and joined as a whole.
SELECT set_config('work_mem', '64MB', true)

-- name: SUMS
-- (by, part, key, subkey, verdict, currency, price, share_den, source, metric, a, b) of a period. The part `gpu` has in `a`
-- units × seconds × share_num of GPUs, `other` of anything else that is charged; `busy` the same of what devices worked,
-- and in `b` of what was covered; `jobs` counts those that held GPUs, and `all` them over all groups. Of pods the `limit`
-- that cost most are groups, the others are one. An hour that a stretch cuts gives by its part of the seconds that the run
-- held in it. `by_use`: where the seconds of a stretch are priced by use, how busy it was counts once, and without a price.
-- Rows are summed by all that any grouping has before they are put into groups.
WITH piece AS MATERIALIZED (
    SELECT * FROM report_pieces(%(cluster)s, %(tenant)s, %(since)s, %(until)s) p
), first AS MATERIALIZED (
    SELECT record_id FROM piece WHERE 'pod' = ANY (%(bys)s) GROUP BY record_id
    ORDER BY coalesce(sum(held * share_num * unit_price / share_den), 0) DESC,
             sum(held * share_num / share_den) FILTER (WHERE gpu) DESC NULLS LAST, record_id LIMIT %(limit)s
), stretch AS NOT MATERIALIZED (
    SELECT p.*, CASE WHEN NOT %(by_use)s OR count(*) OVER same = 1 THEN p.price_id END AS only_price,
           CASE WHEN %(by_use)s THEN row_number() OVER (PARTITION BY p.record_id, p.since, p.until ORDER BY p.price_id)
                ELSE 1 END AS place,
           CASE WHEN %(by_use)s THEN min(p.verdict) OVER same = max(p.verdict) OVER same ELSE true END AS alike
    FROM piece p WHERE p.gpu WINDOW same AS (PARTITION BY p.record_id, p.since, p.until)
), total AS (
    SELECT p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, f.record_id AS pod, p.gpu, p.verdict,
           p.currency, p.price_id, p.share_den, sum(p.held * p.share_num) AS held
    FROM piece p LEFT JOIN first f ON f.record_id = p.record_id
    GROUP BY p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, f.record_id, p.gpu, p.verdict,
             p.currency, p.price_id, p.share_den
), busy AS (
    SELECT p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, f.record_id AS pod, p.verdict, p.currency,
           p.only_price, p.share_den, h.source, h.metric, sum(p.share_num * (x.ends - x.begins)) AS covered,
           sum(p.share_num * CASE WHEN x.begins = 0 AND x.ends = h.covered THEN h.busy
                                  ELSE trunc(h.busy * x.ends / h.covered, 9) - trunc(h.busy * x.begins / h.covered, 9)
                                  END) AS worked
    FROM stretch p JOIN clusters_utilisationhour h
      ON h.record_id = p.record_id AND h.hour < p.until AND h.hour > p.since - 3600
    CROSS JOIN LATERAL covered_within(
        h.hour, h.covered, p.gpus, p.started, p.finish, p.suspended, p.since, p.until) x
    LEFT JOIN first f ON f.record_id = p.record_id
    WHERE p.place = 1 AND p.alike AND h.covered > 0
    GROUP BY p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, f.record_id, p.verdict, p.currency,
             p.only_price, p.share_den, h.source, h.metric
)
SELECT g."by", CASE WHEN t.gpu THEN 'gpu' ELSE 'other' END,
       report_key(g."by", t.tenant_id, t.cluster, t.gpu_model, t."user", t.pod),
       report_subkey(g."by", t.project_id, t.account, t.pod), t.verdict, t.currency, t.price_id, t.share_den, NULL, NULL,
       sum(t.held), NULL
FROM total t CROSS JOIN unnest(%(bys)s::text[]) AS g ("by") GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
UNION ALL
SELECT g."by", 'busy', report_key(g."by", t.tenant_id, t.cluster, t.gpu_model, t."user", t.pod),
       report_subkey(g."by", t.project_id, t.account, t.pod), t.verdict, t.currency, t.only_price, t.share_den, t.source,
       t.metric, sum(t.worked), sum(t.covered)
FROM busy t CROSS JOIN unnest(%(bys)s::text[]) AS g ("by") GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
UNION ALL
SELECT g."by", 'jobs', report_key(g."by", p.tenant_id, p.cluster, p.gpu_model, p."user", f.record_id),
       report_subkey(g."by", p.project_id, p.account, f.record_id), p.verdict, p.currency, NULL, NULL, NULL, NULL,
       count(DISTINCT p.record_id), NULL
FROM piece p LEFT JOIN first f ON f.record_id = p.record_id CROSS JOIN unnest(%(bys)s::text[]) AS g ("by")
WHERE p.gpu GROUP BY 1, 2, 3, 4, 5, 6
UNION ALL
SELECT g."by", 'all', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       (SELECT count(DISTINCT record_id) FROM piece WHERE gpu), NULL
FROM unnest(%(bys)s::text[]) AS g ("by")

-- name: SUMS_OWN
WITH piece AS MATERIALIZED (
    SELECT * FROM report_own_pieces(%(tenant)s, %(since)s, %(until)s) p
), first AS MATERIALIZED (
    SELECT record_id FROM piece WHERE 'pod' = ANY (%(bys)s) GROUP BY record_id
    ORDER BY coalesce(sum(held * share_num * unit_price / share_den), 0) DESC,
             sum(held * share_num / share_den) FILTER (WHERE gpu) DESC NULLS LAST, record_id LIMIT %(limit)s
), stretch AS NOT MATERIALIZED (
    SELECT p.*, CASE WHEN NOT %(by_use)s OR count(*) OVER same = 1 THEN p.price_id END AS only_price,
           CASE WHEN %(by_use)s THEN row_number() OVER (PARTITION BY p.record_id, p.since, p.until ORDER BY p.price_id)
                ELSE 1 END AS place,
           CASE WHEN %(by_use)s THEN min(p.verdict) OVER same = max(p.verdict) OVER same ELSE true END AS alike
    FROM piece p WHERE p.gpu WINDOW same AS (PARTITION BY p.record_id, p.since, p.until)
), total AS (
    SELECT p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, f.record_id AS pod, p.gpu, p.verdict,
           p.currency, p.price_id, p.share_den, sum(p.held * p.share_num) AS held
    FROM piece p LEFT JOIN first f ON f.record_id = p.record_id
    GROUP BY p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, f.record_id, p.gpu, p.verdict,
             p.currency, p.price_id, p.share_den
), busy AS (
    SELECT p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, f.record_id AS pod, p.verdict, p.currency,
           p.only_price, p.share_den, h.source, h.metric, sum(p.share_num * (x.ends - x.begins)) AS covered,
           sum(p.share_num * CASE WHEN x.begins = 0 AND x.ends = h.covered THEN h.busy
                                  ELSE trunc(h.busy * x.ends / h.covered, 9) - trunc(h.busy * x.begins / h.covered, 9)
                                  END) AS worked
    FROM stretch p CROSS JOIN LATERAL (
        SELECT * FROM billing_ownhour v
        WHERE v.record_id = p.record_id AND v.hour < p.until AND v.hour > p.since - 3600 OFFSET 0
    ) h
    CROSS JOIN LATERAL covered_within(
        h.hour, h.covered, p.gpus, p.started, p.finish, p.suspended, p.since, p.until) x
    LEFT JOIN first f ON f.record_id = p.record_id
    WHERE p.place = 1 AND p.alike AND h.covered > 0
    GROUP BY p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, f.record_id, p.verdict, p.currency,
             p.only_price, p.share_den, h.source, h.metric
)
SELECT g."by", CASE WHEN t.gpu THEN 'gpu' ELSE 'other' END,
       report_key(g."by", t.tenant_id, t.cluster, t.gpu_model, t."user", t.pod),
       report_subkey(g."by", t.project_id, t.account, t.pod), t.verdict, t.currency, t.price_id, t.share_den, NULL, NULL,
       sum(t.held), NULL
FROM total t CROSS JOIN unnest(%(bys)s::text[]) AS g ("by") GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
UNION ALL
SELECT g."by", 'busy', report_key(g."by", t.tenant_id, t.cluster, t.gpu_model, t."user", t.pod),
       report_subkey(g."by", t.project_id, t.account, t.pod), t.verdict, t.currency, t.only_price, t.share_den, t.source,
       t.metric, sum(t.worked), sum(t.covered)
FROM busy t CROSS JOIN unnest(%(bys)s::text[]) AS g ("by") GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
UNION ALL
SELECT g."by", 'jobs', report_key(g."by", p.tenant_id, p.cluster, p.gpu_model, p."user", f.record_id),
       report_subkey(g."by", p.project_id, p.account, f.record_id), p.verdict, p.currency, NULL, NULL, NULL, NULL,
       count(DISTINCT p.record_id), NULL
FROM piece p LEFT JOIN first f ON f.record_id = p.record_id CROSS JOIN unnest(%(bys)s::text[]) AS g ("by")
WHERE p.gpu GROUP BY 1, 2, 3, 4, 5, 6
UNION ALL
SELECT g."by", 'all', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       (SELECT count(DISTINCT record_id) FROM piece WHERE gpu), NULL
FROM unnest(%(bys)s::text[]) AS g ("by")

-- name: TOP_JOBS
-- (by, key, subkey, currency, record, place, price, share_den, units × seconds × share_num) of a group's most expensive jobs.
-- What a job used is summed once for all groupings.
WITH part AS MATERIALIZED (
    SELECT p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, p.currency, p.record_id, p.price_id,
           p.share_den, sum(p.held * p.share_num) AS units, sum(p.held * p.share_num * p.unit_price / p.share_den) AS cost
    FROM report_pieces(%(cluster)s, %(tenant)s, %(since)s, %(until)s) p WHERE p.gpu AND p.verdict = 'charged'
    GROUP BY p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, p.currency, p.record_id, p.price_id,
             p.share_den
), job AS (
    SELECT g."by", report_key(g."by", p.tenant_id, p.cluster, p.gpu_model, p."user", NULL) AS key,
           report_subkey(g."by", p.project_id, p.account, NULL) AS subkey, p.currency, p.record_id, p.price_id, p.share_den,
           p.units, p.cost
    FROM part p CROSS JOIN unnest(%(bys)s::text[]) AS g ("by") WHERE g."by" <> 'pod'
), ranked AS (
    SELECT *, dense_rank() OVER (PARTITION BY "by", key, subkey, currency ORDER BY whole DESC, record_id) AS place
    FROM (SELECT *, sum(cost) OVER (PARTITION BY "by", key, subkey, currency, record_id) AS whole FROM job) j
)
SELECT "by", key, subkey, currency, record_id, place, price_id, share_den, sum(units)
FROM ranked WHERE place <= %(top_jobs)s GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY place

-- name: TOP_JOBS_OWN
WITH part AS MATERIALIZED (
    SELECT p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, p.currency, p.record_id, p.price_id,
           p.share_den, sum(p.held * p.share_num) AS units, sum(p.held * p.share_num * p.unit_price / p.share_den) AS cost
    FROM report_own_pieces(%(tenant)s, %(since)s, %(until)s) p WHERE p.gpu AND p.verdict = 'charged'
    GROUP BY p.tenant_id, p.project_id, p.cluster, p.account, p."user", p.gpu_model, p.currency, p.record_id, p.price_id,
             p.share_den
), job AS (
    SELECT g."by", report_key(g."by", p.tenant_id, p.cluster, p.gpu_model, p."user", NULL) AS key,
           report_subkey(g."by", p.project_id, p.account, NULL) AS subkey, p.currency, p.record_id, p.price_id, p.share_den,
           p.units, p.cost
    FROM part p CROSS JOIN unnest(%(bys)s::text[]) AS g ("by") WHERE g."by" <> 'pod'
), ranked AS (
    SELECT *, dense_rank() OVER (PARTITION BY "by", key, subkey, currency ORDER BY whole DESC, record_id) AS place
    FROM (SELECT *, sum(cost) OVER (PARTITION BY "by", key, subkey, currency, record_id) AS whole FROM job) j
)
SELECT "by", key, subkey, currency, record_id, place, price_id, share_den, sum(units)
FROM ranked WHERE place <= %(top_jobs)s GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY place

-- name: RUNS
-- (record, cluster, account, user, job, name, model) of runs.
SELECT record_id, cluster, account, "user", job_id, name, gpu_model FROM clusters_run
WHERE record_id = ANY (%(records)s)

-- name: RUNS_OWN
SELECT record_id, cluster, account, "user", job_id, name, gpu_model FROM billing_ownrun
WHERE record_id = ANY (%(records)s)

-- name: COUNT_TO_LIMIT
-- As far as the limit, the rated rows of the months of a period, of all clusters as reports read them, or the cluster's
-- records that were numbered in these months, whoever owns them: the more of the two. Other months are not looked at.
SELECT greatest((
    SELECT count(*) FROM (
        SELECT 1 FROM billing_ratedusage
        WHERE service_month >= utc_month(%(since)s) AND service_month <= utc_month(%(until)s - 1) LIMIT %(limit)s
    ) r
), (
    SELECT count(*) FROM (
        SELECT 1 FROM clusters_usagerecord
        WHERE cluster_id = %(cluster)s AND id >= month_number(%(since)s)::bigint << 40
          AND id < (month_number(%(until)s - 1) + 1)::bigint << 40 LIMIT %(limit)s
    ) u
))
