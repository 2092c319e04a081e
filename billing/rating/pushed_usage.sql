-- Usage that programs push: what became of the events of one request.

-- name: NEWEST
-- The newest event of each run that is there.
SELECT k.source_key, p.time, p.sequence, p.digest, p.is_sum
FROM unnest(%(keys)s::text[]) AS k (source_key)
CROSS JOIN LATERAL (
    SELECT * FROM clusters_pushedrun r WHERE r.cluster_id = %(cluster)s AND r.source_key = k.source_key OFFSET 0
) p

-- name: KEEP_NEWEST
INSERT INTO clusters_pushedrun (cluster_id, source_key, time, sequence, digest, is_sum)
SELECT %(cluster)s, k.source_key, k.time, k.sequence, k.digest, k.is_sum
FROM unnest(%(keys)s::text[], %(times)s::timestamptz[], %(sequences)s::text[], %(digests)s::bytea[], %(sums)s::boolean[])
    AS k (source_key, time, sequence, digest, is_sum)
ON CONFLICT (cluster_id, source_key) DO UPDATE
SET time = excluded.time, sequence = excluded.sequence, digest = excluded.digest

-- name: VERDICTS
-- What the ledger made of each.
SELECT source_key, verdict FROM usage_match

-- name: WARNINGS
-- Of what was stored and rated by this request: the accounts that nobody owns then, the models and meters that no price
-- covers, and the meters that the plan of their tenant does not charge.
SELECT 'unassigned', u.account, count(*) FROM usage_input u
WHERE NOT EXISTS (SELECT FROM billing_ratedjob j WHERE j.record_id = u.record_id) GROUP BY u.account
UNION ALL
SELECT 'unpriced', coalesce(nullif(u.meter, ''), u.gpu_model), count(*) FROM usage_input u
WHERE EXISTS (SELECT FROM billing_ratedjob j WHERE j.record_id = u.record_id AND j.unpriced) GROUP BY 2
UNION ALL
SELECT 'waived', u.meter, count(*) FROM usage_input u
JOIN rate_span s ON s.account_id = u.account_id AND s.since <= u.started AND s.until > u.started
WHERE u.meter <> '' AND NOT u.meter = ANY (s.charges) GROUP BY u.meter
ORDER BY 1, 2

-- name: SILENT
-- Open runs of which nothing came for so long: flagged, and billed up to the last.
INSERT INTO clusters_vanishedrun (record_id, since)
SELECT u.id, %(moment)s
FROM clusters_cluster c JOIN clusters_usagerecord u ON u.cluster_id = c.id AND u.ended IS NULL
JOIN clusters_pushedrun p ON p.cluster_id = u.cluster_id AND p.source_key = u.source_key
WHERE c.kind = 'push' AND p.time < %(quiet_before)s
ON CONFLICT (record_id) DO NOTHING
