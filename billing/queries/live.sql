-- What a tenant's open jobs accrue. `billing_terms_of` gives the terms under which a job ran in a second;
-- `billing_all_terms_of` with what its plan does not charge.

-- name: COUNTS
SELECT count(*) FILTER (WHERE j.started IS NULL AND j.record_id <> ALL (%(gone)s)),
       count(*) FILTER (WHERE j.started IS NOT NULL AND j.seen_until >= m.since AND j.record_id <> ALL (%(gone)s)),
       count(*) FILTER (WHERE j.started IS NOT NULL AND j.seen_until >= m.since AND j.record_id <> ALL (%(gone)s)
                          AND j.unpriced),
       count(*) FILTER (WHERE j.record_id = ANY (%(gone)s) OR (
           j.started IS NOT NULL AND (j.seen_until >= m.since AND j.record_id <> ALL (%(gone)s)) IS NOT TRUE))
FROM billing_ratedjob j
LEFT JOIN unnest(%(clusters)s::text[], %(since)s::bigint[]) AS m (cluster, since) ON m.cluster = j.cluster
WHERE j.tenant_id = %(tenant)s AND j.ended IS NULL

-- name: RUNNING
-- Those that COUNTS has as running, and their GPUs, by the part of a GPU that each is.
SELECT j.share_num, j.share_den, count(*), coalesce(sum(j.gpus), 0)::bigint
FROM billing_ratedjob j
JOIN unnest(%(clusters)s::text[], %(since)s::bigint[]) AS m (cluster, since) ON m.cluster = j.cluster
WHERE j.tenant_id = %(tenant)s AND j.ended IS NULL AND j.started IS NOT NULL AND j.seen_until >= m.since
  AND j.record_id <> ALL (ARRAY(SELECT v.record_id FROM billing_vanishedjob v WHERE v.tenant_id = %(tenant)s))
GROUP BY 1, 2

-- name: NOW
SELECT o.gpu_model, o.mig_profile, o.share_num, o.share_den, c.resource, c.verdict, c.price_id,
       sum(o.gpus)::bigint, sum(o.cpu_milli)::bigint, sum(o.memory_mib)::bigint,
       sum(o.gpu_memory_mib)::bigint, sum(o.billing)::bigint
FROM (
    SELECT j.*, j.seen_until AS finish FROM billing_ratedjob j
    JOIN unnest(%(clusters)s::text[], %(since)s::bigint[]) AS m (cluster, since) ON m.cluster = j.cluster
    WHERE j.tenant_id = %(tenant)s AND j.ended IS NULL AND j.seen_until > j.started
      AND j.seen_until >= m.since AND j.record_id <> ALL (%(gone)s)
) o CROSS JOIN LATERAL billing_terms_of(%(tenant)s, o.record_id, o.finish) c
GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2, 3, 4

-- name: TERMS
SELECT o.record_id, c.resource, c.verdict, c.price_id
FROM unnest(%(records)s::bigint[], %(finishes)s::bigint[]) AS o (record_id, finish)
CROSS JOIN LATERAL billing_all_terms_of(%(tenant)s, o.record_id, o.finish) c

-- name: REQUESTED
SELECT record_id, requested, time_limit, shares FROM billing_openjob WHERE record_id = ANY (%(records)s)

-- name: GONE
SELECT record_id FROM billing_vanishedjob WHERE tenant_id = %(tenant)s

-- name: LIKE
-- What jobs of the same kind were charged last. Only so many of the newest jobs are looked through.
WITH recent AS MATERIALIZED (
    SELECT j.record_id, j.cluster, j.account, j.queue, j.qos, j.gpu_model, j.mig_profile,
           coalesce(j.ended, j.seen_until) AS finish, j.started
    FROM billing_ratedjob j WHERE j.tenant_id = %(tenant)s AND j.meter = '' AND j.started IS NOT NULL
    ORDER BY j.shown_at DESC, j.record_id DESC LIMIT %(recent)s
), newest AS MATERIALIZED (
    SELECT DISTINCT ON (r.cluster, r.account, r.queue, r.qos, r.gpu_model, r.mig_profile) * FROM recent r
    WHERE r.finish > r.started
    ORDER BY r.cluster, r.account, r.queue, r.qos, r.gpu_model, r.mig_profile, r.finish DESC, r.record_id DESC
)
SELECT k.place, c.resource, c.verdict, c.price_id
FROM unnest(%(places)s::int[], %(clusters)s::text[], %(accounts)s::text[], %(queues)s::text[], %(qoses)s::text[],
            %(models)s::text[], %(profiles)s::text[])
     AS k (place, cluster, account, queue, qos, gpu_model, mig_profile)
JOIN newest o USING (cluster, account, queue, qos, gpu_model, mig_profile)
CROSS JOIN LATERAL billing_all_terms_of(%(tenant)s, o.record_id, o.finish) c
