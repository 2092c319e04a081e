-- Runs that failed by their hardware.

-- name: FAILED
-- Of tenants, those that ended after `since` and meet a rule: by the first error of their GPUs, or by the state in which
-- they ended. Without those that it has met before, and, unless it is watched, those that are credited already.
WITH failed AS (
    SELECT j.tenant_id, j.record_id, j.job_id, j.name, j."user", j.cluster, to_timestamp(j.ended) AS ended,
           greatest(to_timestamp(j.started), least(e.at, to_timestamp(j.ended))) AS failed, e.cause,
           CASE e.gpu_slice WHEN '' THEN e.uuid ELSE left(e.uuid || '/' || e.gpu_slice, 255) END AS gpu, e.node
    FROM clusters_gpuerror e JOIN billing_ratedjob j ON j.record_id = e.record_id
    WHERE e.cause = ANY (%(causes)s) AND j.ended > %(since)s AND j.ended <= %(until)s
    UNION ALL
    SELECT j.tenant_id, j.record_id, j.job_id, j.name, j."user", j.cluster, to_timestamp(j.ended), to_timestamp(j.ended),
           left(j.state, 255), '', ''
    FROM billing_ratedjob j
    WHERE upper(j.state) = ANY (%(states)s) AND j.meter = '' AND j.started < j.ended
      AND j.ended > %(since)s AND j.ended <= %(until)s
)
SELECT DISTINCT ON (f.tenant_id, f.record_id) f.*
FROM failed f
WHERE %(cluster)s IN ('', f.cluster) AND NOT EXISTS (
    SELECT FROM billing_servicecredit c
    WHERE c.tenant_id = f.tenant_id AND c.record_id = f.record_id
      AND (c.failure_rule_id = %(rule)s OR (c.state <> 'watched' AND NOT %(watch)s))
)
ORDER BY f.tenant_id, f.record_id, f.gpu = '', f.failed, f.cause
