-- Running jobs that hold GPUs and do not use them, and what became of those that were found.

-- name: IDLE
-- By rule the running jobs that meet it: since when whole hours without a gap are known to be idle, and up to when they
-- are known. An hour is idle if the job's own devices were covered for nine tenths of it and worked no more of it than
-- the rule says. Telemetry that ends before `known_from` tells nothing of now. Time in which a job was suspended has no
-- position, so the idle hours must be as many more.
WITH rule AS MATERIALIZED (
    SELECT * FROM unnest(%(rules)s::bigint[], %(clusters)s::text[], %(kinds)s::text[], %(hours)s::bigint[],
                         %(busy)s::int[]) AS r (id, cluster, kind, hours, busy)
), run AS MATERIALIZED (
    SELECT o.tenant_id, o.record_id, j.started, o.cluster, o.account, o."user", o.queue, o.qos, o.gpus, o.share_num, o.share_den, o.gpu_model,
           j.job_id, j.name, (j.suspended + 3599) / 3600 AS suspended, t.known
    FROM billing_openrun o
    JOIN billing_ratedjob j ON j.record_id = o.record_id AND j.tenant_id = o.tenant_id
    CROSS JOIN LATERAL (
        SELECT max(h.hour) + 3600 AS known FROM clusters_utilisationhour h
        WHERE h.record_id = o.record_id AND h.hour >= %(known_from)s - 3600
    ) t
    WHERE o.gpus > 0 AND j.meter = '' AND t.known >= %(known_from)s
      AND o.seen_until >= coalesce(o.read_until, o.seen_until) - %(unseen)s
      AND (%(records)s::bigint[] IS NULL OR o.record_id = ANY (%(records)s))
), met AS MATERIALIZED (
    SELECT r.id AS rule, r.kind, r.busy, u.*
    FROM rule r JOIN run u ON r.cluster IN ('', u.cluster)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE h.source = 'device' AND h.covered * 10 >= u.gpus * 3600::bigint * 9
                                  AND h.busy * 100 <= h.covered::numeric * r.busy) AS idle
        FROM clusters_utilisationhour h
        WHERE h.record_id = u.record_id AND h.hour >= u.known - (r.hours + u.suspended) * 3600 AND h.hour < u.known
    ) w
    WHERE w.idle = r.hours + u.suspended
)
SELECT m.rule, m.tenant_id, m.record_id, k.source_key, m.job_id, m.name, m."user", m.cluster, m.account, m.gpus,
       m.share_num, m.share_den, m.gpu_model, m.queue, m.qos, s.since, m.known,
       CASE WHEN k.time_limit > 0 THEN m.started + k.suspended + k.time_limit END AS limit_at
FROM met m
JOIN clusters_usagerecord k ON k.id = m.record_id AND k.ended IS NULL
CROSS JOIN LATERAL (
    SELECT min(i.hour) AS since FROM (
        SELECT h.hour, row_number() OVER (ORDER BY h.hour DESC) AS place FROM clusters_utilisationhour h
        WHERE h.record_id = m.record_id AND h.hour < m.known AND h.source = 'device'
          AND h.covered * 10 >= m.gpus * 3600::bigint * 9 AND h.busy * 100 <= h.covered::numeric * m.busy
    ) i WHERE i.hour = m.known - i.place * 3600
) s
CROSS JOIN LATERAL (
    SELECT bool_or(h.busy * 100 > h.covered::numeric * m.busy) AS worked FROM clusters_utilisationhour h
    WHERE h.record_id = m.record_id
) p
WHERE m.kind = 'idle' OR (m.kind = 'tail' AND p.worked)
   OR (m.kind = 'unused' AND NOT p.worked AND s.since <= (m.started + 3599) / 3600 * 3600)
ORDER BY m.rule, m.record_id

-- name: PRESENT
-- How the jobs are now: when each ended (of one that its tenant does not have any more: now), up to when its telemetry
-- is known, and when the last hour began in which it worked more than so many percent.
SELECT w.finding, CASE WHEN j.record_id IS NULL THEN %(second)s ELSE j.ended END AS ended, h.known, h.worked
FROM unnest(%(findings)s::bigint[], %(tenants)s::bigint[], %(records)s::bigint[], %(busy)s::int[])
     AS w (finding, tenant_id, record_id, busy)
LEFT JOIN billing_ratedjob j ON j.record_id = w.record_id AND j.tenant_id = w.tenant_id
CROSS JOIN LATERAL (
    SELECT max(h.hour) + 3600 AS known,
           max(h.hour) FILTER (WHERE h.busy * 100 > h.covered::numeric * w.busy) AS worked
    FROM clusters_utilisationhour h WHERE h.record_id = w.record_id
) h
ORDER BY 1

-- name: COSTS
-- What the resources of running jobs that are charged use in an hour.
SELECT r.record_id, c.price_id, resource_parts(c.resource, r.share_den) AS parts,
       resource_amount(c.resource, r.gpus, r.cpu_milli, r.memory_mib, r.gpu_memory_mib, r.billing)::numeric * 3600
           * CASE c.resource WHEN 'gpu' THEN r.share_num ELSE 1 END AS an_hour
FROM billing_openrun r
CROSS JOIN LATERAL billing_terms_of(r.tenant_id, r.record_id, r.seen_until) c
WHERE r.record_id = ANY (%(records)s) AND c.verdict = 'charged' AND c.price_id IS NOT NULL
ORDER BY 1, 2
