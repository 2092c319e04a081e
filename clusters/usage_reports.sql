-- What runs held in a span, whoever they belong to.

-- name: ALLOCATED
SELECT u.gpu_model, u.share_den, sum(u.gpus::numeric * u.share_num
           * held_seconds(%(since)s::bigint, %(until)s::bigint, u.started, u.finish, u.suspended))
FROM clusters_run u
WHERE u.cluster_id = %(cluster)s AND u.started < %(until)s AND u.finish > %(since)s AND u.gpus > 0
GROUP BY u.gpu_model, u.share_den

-- name: SHARES
SELECT DISTINCT u.share_den FROM clusters_run u
WHERE u.cluster_id = %(cluster)s AND u.started < %(until)s AND u.finish > %(since)s AND u.gpus > 0

-- name: IDLE_WHILE_WAITING
-- In parts of a GPU, of which each share is a whole number: at each moment what is up and not held, while a job waits.
WITH node AS (
    SELECT * FROM unnest(%(models)s::text[], %(gpus)s::bigint[], %(begins)s::bigint[], %(ends)s::bigint[])
        AS n (gpu_model, gpus, since, until)
), run AS (
    SELECT u.gpu_model, u.gpus::bigint * u.share_num * (%(parts)s::bigint / u.share_den) AS held,
           greatest(u.started, %(since)s) AS since, least(u.finish, %(until)s) AS until
    FROM clusters_run u
    WHERE u.cluster_id = %(cluster)s AND u.started < %(until)s AND u.finish > %(since)s AND u.gpus > 0
), queue AS (
    SELECT gpu_model, greatest(coalesce(eligible, submitted), %(since)s) AS since,
           least(coalesce(started, ended, %(until)s), %(until)s) AS until
    FROM clusters_usagerecord
    WHERE cluster_id = %(cluster)s AND gpus > 0 AND coalesce(eligible, submitted) < %(until)s
      AND coalesce(started, ended, %(until)s) > greatest(coalesce(eligible, submitted), %(since)s)
), change AS (
    SELECT gpu_model, since AS at, gpus * %(parts)s AS free, 0 AS waits FROM node
    UNION ALL SELECT gpu_model, until, -gpus * %(parts)s, 0 FROM node
    UNION ALL SELECT gpu_model, since, -held, 0 FROM run WHERE since < until
    UNION ALL SELECT gpu_model, until, held, 0 FROM run WHERE since < until
    UNION ALL SELECT m.gpu_model, e.at, 0, e.waits
    FROM queue q CROSS JOIN LATERAL (VALUES (q.since, 1), (q.until, -1)) e (at, waits)
    JOIN (SELECT DISTINCT gpu_model FROM node) m ON m.gpu_model = q.gpu_model OR q.gpu_model = ''
), moment AS (
    SELECT gpu_model, at, sum(free) AS free, sum(waits) AS waits FROM change GROUP BY gpu_model, at
), stretch AS (
    SELECT gpu_model, lead(at) OVER since - at AS seconds, sum(free) OVER since AS free, sum(waits) OVER since AS waits
    FROM moment WINDOW since AS (PARTITION BY gpu_model ORDER BY at)
)
SELECT gpu_model, sum(seconds * free) FROM stretch WHERE waits > 0 AND free > 0 AND seconds > 0 GROUP BY gpu_model

-- name: WAITING_JOBS
-- (how many of all, record, job, account, user, model, GPUs, seconds of the span in which it waited) of those that waited
-- for one of these models, the most GPU-seconds first.
SELECT count(*) OVER (), u.id, u.job_id, a.name, u."user", u.gpu_model, u.gpus, w.seconds
FROM clusters_usagerecord u JOIN clusters_account a ON a.id = u.account_id
CROSS JOIN LATERAL (
    SELECT least(coalesce(u.started, u.ended, %(until)s), %(until)s)
         - greatest(coalesce(u.eligible, u.submitted), %(since)s) AS seconds
) w
WHERE u.cluster_id = %(cluster)s AND u.gpus > 0 AND coalesce(u.eligible, u.submitted) < %(until)s AND w.seconds > 0
  AND (u.gpu_model = '' OR u.gpu_model = ANY (%(models)s))
ORDER BY u.gpus * w.seconds DESC, u.id LIMIT %(most)s
