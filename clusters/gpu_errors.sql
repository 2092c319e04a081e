-- Which run held the GPU of an error.

-- name: MATCH
-- Of those that the exporter named around then, the one run with GPUs that held them between the last sample without the
-- error and the first one with it. Slurm's jobs are named by their number, which is what their key begins with; pods
-- with namespace and container. Where several did, it cannot be told.
WITH error AS MATERIALIZED (
    SELECT id, jobs, extract(epoch FROM clean_until)::bigint AS clean_until, extract(epoch FROM at)::bigint AS at
    FROM clusters_gpuerror
    WHERE cluster_id = %(cluster)s AND record_id IS NULL AND jobs <> '{}' AND at >= to_timestamp(%(since)s)
), run AS MATERIALIZED (
    SELECT r.id, r.source_key, r.job_id, r.started, r.ended
    FROM clusters_usagerecord r
    WHERE r.cluster_id = %(cluster)s AND r.gpus > 0 AND r.meter = ''
      AND r.started <= (SELECT max(at) FROM error)
      AND (r.ended IS NULL OR r.ended >= (SELECT min(clean_until) FROM error))
), matched AS (
    SELECT e.id, min(r.id) AS record_id
    FROM error e
    JOIN run r ON r.started <= e.at AND (r.ended IS NULL OR r.ended >= e.clean_until)
              AND (split_part(r.source_key, '@', 1) = ANY (e.jobs) OR r.job_id = ANY (e.jobs)
                   OR r.job_id || '/' || split_part(r.source_key, '/', 2) = ANY (e.jobs))
    GROUP BY e.id HAVING count(*) = 1
)
UPDATE clusters_gpuerror e SET record_id = m.record_id FROM matched m WHERE m.id = e.id
