-- What idle jobs cost, and what ending them saved.

-- name: SAVED
-- By rule, state and currency: jobs that were found from `earliest` on, each once; what their idle hours cost until they ended, worked again
-- or now; and of those that were, or would have been, ended: GPU-seconds and money that were not used since, or would not
-- have been. Of an ended job at most until its time limit, without one for a day. Of a watched one until it did end or
-- work again, as it was seen: `again` are those that worked again after their end.
SELECT f.rule_id, f.state, f.currency, count(DISTINCT f.record_id) AS jobs,
       sum(f.gpus * f.share_num::numeric * s.idle / f.share_den) AS idle_gpu_seconds, sum(f.hour_cost * s.idle) / 3600 AS idle_cost,
       sum(f.gpus * f.share_num::numeric * s.saved / f.share_den) AS saved_gpu_seconds, sum(f.hour_cost * s.saved) / 3600 AS saved_cost,
       count(DISTINCT f.record_id) FILTER (WHERE f.state = 'watched' AND f.closed_for = 'busy' AND f.ran_until >= f.due_at) AS again
FROM billing_wastefinding f
CROSS JOIN LATERAL (
    SELECT least(coalesce(f.ended_at, f.ran_until, %(moment)s), %(moment)s) AS until,
           CASE WHEN f.state IN ('ended', 'requeued')
                THEN least(coalesce(f.limit_at, f.ended_at + interval '1 day'), %(moment)s)
                WHEN f.state = 'watched' THEN least(coalesce(f.ran_until, %(moment)s), %(moment)s) END AS spared,
           CASE f.state WHEN 'watched' THEN f.due_at ELSE f.ended_at END AS since
) m
CROSS JOIN LATERAL (
    SELECT greatest(extract(epoch FROM m.until - f.idle_since), 0)::bigint AS idle,
           coalesce(greatest(extract(epoch FROM m.spared - m.since), 0), 0)::bigint AS saved
) s
WHERE f.began_at >= %(earliest)s AND (%(tenant)s::bigint IS NULL OR f.tenant_id = %(tenant)s)
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
