-- What nodes had by day.

-- name: OBSERVED
-- (cluster, first look at its nodes, model, begin of a UTC day, GPU-seconds); no model where nothing of it is in the span.
SELECT c.name, f.looked, i.gpu_model, d.at,
       sum(i.gpus::numeric * (least(i.until, d.at + 86400, r.through) - greatest(i.since, d.at, %(since)s::bigint)))
FROM clusters_cluster c
CROSS JOIN LATERAL (SELECT least(extract(epoch FROM c.complete_through)::bigint, %(until)s::bigint) AS through) r
CROSS JOIN LATERAL (SELECT min(since) AS looked FROM clusters_capacityinterval WHERE cluster_id = c.id) f
LEFT JOIN LATERAL (
    SELECT gpu_model, gpus, since, coalesce(until, r.through) AS until FROM clusters_capacityinterval
    WHERE cluster_id = c.id AND since < r.through AND (until IS NULL OR until > %(since)s)
) i ON c.complete_through IS NOT NULL
LEFT JOIN LATERAL generate_series(
    greatest(i.since, %(since)s::bigint) / 86400 * 86400, least(i.until, r.through) - 1, 86400) AS d(at) ON true
WHERE f.looked IS NOT NULL AND (i.gpu_model IS NULL OR d.at IS NOT NULL)
GROUP BY 1, 2, 3, 4
