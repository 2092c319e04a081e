-- How many jobs ran in two ranges of days. A job may have run in both.

-- name: RUNS
-- By range and group: the rows that were read, the jobs (all pods of one are one), those of them that held GPUs, and the
-- arrays of the user and name that most rows are tasks of. One row more than `most_runs` says that there are too many.
-- Rows are counted as they are read: only pods, which are told apart by their job, and tasks of arrays are kept by name. Of
-- jobs that began before a range those are read that ended in it or later, which few blocks hold, and those that run on.
WITH ran AS MATERIALIZED (
    SELECT earlier, project_id, key1, key2, CASE WHEN is_task THEN "user" END AS "user",
           CASE WHEN is_task THEN name END AS name, pods, count(*) AS rows, count(*) FILTER (WHERE pods IS NULL) AS alone,
           count(*) FILTER (WHERE pods IS NULL AND gpus > 0) AS alone_on_gpus, bool_or(gpus > 0) AS on_gpus
    FROM (
        SELECT a.earlier, r."user", r.name, r.gpus,
               CASE WHEN 'project' IN (%(by1)s, %(by2)s) THEN r.project_id END AS project_id,
               CASE %(by1)s WHEN 'user' THEN r."user" WHEN 'account' THEN r.account WHEN 'cluster' THEN r.cluster
                    WHEN 'gpu_model' THEN r.gpu_model WHEN 'queue' THEN r.queue WHEN 'qos' THEN r.qos
                    WHEN 'state' THEN r.state ELSE '' END AS key1,
               CASE %(by2)s WHEN 'user' THEN r."user" WHEN 'account' THEN r.account WHEN 'cluster' THEN r.cluster
                    WHEN 'gpu_model' THEN r.gpu_model WHEN 'queue' THEN r.queue WHEN 'qos' THEN r.qos
                    WHEN 'state' THEN r.state ELSE '' END AS key2,
               CASE WHEN r.part_of <> '' THEN concat_ws(' ', r.project_id, r.cluster, r.part_of) END AS pods,
               r.name <> '' AND r.job_id ~ '^\d+[_[]\d' AS is_task
        FROM (VALUES (false, %(since)s::bigint, %(until)s::bigint),
                     (true, %(earlier_since)s::bigint, %(earlier_until)s::bigint)) AS a (earlier, since, until)
        CROSS JOIN LATERAL (
            SELECT project_id, "user", account, cluster, gpu_model, queue, qos, state, name, gpus, part_of, job_id
            FROM billing_ratedjob j
            WHERE j.tenant_id = %(tenant)s AND j.meter = '' AND j.shown_at < a.until AND j.shown_at >= a.since
              AND job_ran_in(j.started, coalesce(j.ended, j.seen_until, j.started), a.since, a.until)
            UNION ALL
            SELECT project_id, "user", account, cluster, gpu_model, queue, qos, state, name, gpus, part_of, job_id
            FROM billing_ratedjob j
            WHERE j.tenant_id = %(tenant)s AND j.meter = '' AND j.shown_at < a.since AND j.shown_at >= a.since - job_look_back()
              AND j.ended >= a.since AND job_ran_in(j.started, j.ended, a.since, a.until)
            UNION ALL
            SELECT project_id, "user", account, cluster, gpu_model, queue, qos, state, name, gpus, part_of, job_id
            FROM billing_ratedjob j
            WHERE j.tenant_id = %(tenant)s AND j.meter = '' AND j.shown_at < a.since AND j.shown_at >= a.since - job_look_back()
              AND j.ended IS NULL AND job_ran_in(j.started, coalesce(j.seen_until, j.started), a.since, a.until) OFFSET 0
        ) r
        WHERE (%(project)s::text IS NULL OR r.project_id IN (SELECT id FROM tenants_project WHERE name = %(project)s))
          AND (%(user)s::text IS NULL OR r."user" = %(user)s)
          AND (%(account)s::text IS NULL OR r.account = %(account)s)
          AND (%(cluster)s::text IS NULL OR r.cluster = %(cluster)s)
          AND (%(gpu_model)s::text IS NULL OR r.gpu_model = %(gpu_model)s)
          AND (%(queue)s::text IS NULL OR r.queue = %(queue)s)
          AND (%(qos)s::text IS NULL OR r.qos = %(qos)s)
          AND (%(state)s::text IS NULL OR %(state)s IN (r.state, lower(r.state)))
        LIMIT %(most_runs)s + 1
    ) job GROUP BY 1, 2, 3, 4, 5, 6, 7
), named AS MATERIALIZED (
    SELECT r.earlier, CASE %(by1)s WHEN 'project' THEN p.name ELSE r.key1 END AS key1,
           CASE %(by2)s WHEN 'project' THEN p.name ELSE r.key2 END AS key2, r."user", r.name, r.pods, r.rows, r.alone,
           r.alone_on_gpus, r.on_gpus
    FROM ran r LEFT JOIN tenants_project p ON p.id = r.project_id
), arrays AS (
    SELECT DISTINCT ON (earlier, key1, key2) earlier, key1, key2, "user", name, sum(rows)::bigint AS tasks
    FROM named WHERE name IS NOT NULL GROUP BY earlier, key1, key2, "user", name
    ORDER BY earlier, key1, key2, sum(rows) DESC, "user", name
)
SELECT n.*, y."user", y.name, coalesce(y.tasks, 0)
FROM (
    SELECT earlier, key1, key2, sum(rows)::bigint, (sum(alone) + count(DISTINCT pods))::bigint,
           (sum(alone_on_gpus) + count(DISTINCT pods) FILTER (WHERE on_gpus))::bigint
    FROM named GROUP BY earlier, key1, key2
) n LEFT JOIN arrays y USING (earlier, key1, key2);
