-- How many jobs ran in two ranges of days. A job may have run in both.

-- name: RUNS
-- By range and group: the rows that were read, the jobs (all pods of one are one), those of them that held GPUs, and the
-- arrays of the user and name that most rows are tasks of. One row more than `most_runs` says that there are too many.
WITH ran AS MATERIALIZED (
    SELECT a.earlier,
           coalesce(x.labels[array_position(x.kinds, %(by1)s)], '') AS key1,
           coalesce(x.labels[array_position(x.kinds, %(by2)s)], '') AS key2,
           r."user", r.name, r.gpus > 0 AS on_gpus,
           CASE WHEN r.part_of = '' THEN r.record_id::text ELSE concat_ws(' ', r.project_id, r.cluster, r.part_of) END AS run,
           r.name <> '' AND r.job_id ~ '^\d+[_[]\d' AS is_task
    FROM (VALUES (false, %(since)s::bigint, %(until)s::bigint), (true, %(earlier_since)s::bigint, %(earlier_until)s::bigint))
      AS a (earlier, since, until)
    JOIN billing_ratedjob r ON r.tenant_id = %(tenant)s AND r.meter = ''
     AND r.shown_at < a.until AND r.shown_at >= a.since - job_look_back()
     AND job_ran_in(r.started, coalesce(r.ended, r.seen_until, r.started), a.since, a.until)
    JOIN tenants_project p ON p.id = r.project_id
    CROSS JOIN LATERAL (
        SELECT ARRAY['project', 'user', 'account', 'cluster', 'gpu_model', 'queue', 'qos', 'state'] AS kinds,
               ARRAY[p.name, r."user", r.account, r.cluster, r.gpu_model, r.queue, r.qos, r.state] AS labels
    ) x
    WHERE (%(project)s::text IS NULL OR p.name = %(project)s)
      AND (%(user)s::text IS NULL OR r."user" = %(user)s)
      AND (%(account)s::text IS NULL OR r.account = %(account)s)
      AND (%(cluster)s::text IS NULL OR r.cluster = %(cluster)s)
      AND (%(gpu_model)s::text IS NULL OR r.gpu_model = %(gpu_model)s)
      AND (%(queue)s::text IS NULL OR r.queue = %(queue)s)
      AND (%(qos)s::text IS NULL OR r.qos = %(qos)s)
      AND (%(state)s::text IS NULL OR r.state = %(state)s)
    LIMIT %(most_runs)s + 1
), arrays AS (
    SELECT DISTINCT ON (earlier, key1, key2) earlier, key1, key2, "user", name, count(*) AS tasks
    FROM ran WHERE is_task GROUP BY earlier, key1, key2, "user", name
    ORDER BY earlier, key1, key2, count(*) DESC, "user", name
)
SELECT n.*, y."user", y.name, coalesce(y.tasks, 0)
FROM (
    SELECT earlier, key1, key2, count(*), count(DISTINCT run), count(DISTINCT run) FILTER (WHERE on_gpus)
    FROM ran GROUP BY earlier, key1, key2
) n LEFT JOIN arrays y USING (earlier, key1, key2);
