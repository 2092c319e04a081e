-- What is staged of a month whose records are in no table.

-- name: LATE
-- Those of which something was told since: their records are in the table, and say what is known.
INSERT INTO usage_late
SELECT s.source_key FROM (
    SELECT DISTINCT source_key FROM usage_stage WHERE coalesce(key_month, held_month) = %(month)s
) s CROSS JOIN LATERAL (
    SELECT FROM clusters_usagerecord r
    WHERE r.cluster_id = %(cluster)s AND r.source_key = s.source_key LIMIT 1
) u

-- name: KEYS
SELECT DISTINCT source_key FROM usage_stage WHERE coalesce(key_month, held_month) = %(month)s
   AND source_key NOT IN (TABLE usage_late) ORDER BY source_key

-- name: SETTLE
-- What was quarantined while the files could not be read, now that it can: it is known there, or is stored as news.
UPDATE clusters_quarantined q SET resolved_at = %(moment)s, resolution = 'The files of its month could be read.'
WHERE q.cluster_id = %(cluster)s AND q.code = 'sealed-month' AND q.resolved_at IS NULL AND q.source_key IN (
    SELECT source_key FROM usage_stage WHERE coalesce(key_month, held_month) = %(month)s)

-- name: NEWS
-- Staged facts that say anything else than the record that was found.
SELECT DISTINCT source_key FROM usage_match WHERE verdict NOT IN ('new', 'same', 'stale')

-- name: LEAVE_OUT_KNOWN
DELETE FROM usage_stage s WHERE coalesce(key_month, held_month) = %(month)s AND source_key <> ALL (%(news)s)
  AND EXISTS (SELECT FROM usage_absent a WHERE a.cluster_id = %(cluster)s AND a.source_key = s.source_key)

-- name: LEAVE_OUT
DELETE FROM usage_stage WHERE coalesce(key_month, held_month) = %(month)s AND source_key = ANY (%(keys)s)

-- name: MONTHS_OF_KEYS
SELECT d FROM billing_dropped_months() AS d WHERE month_number(extract(epoch FROM d)::bigint) IN (
    SELECT coalesce(usage_key_month(n.key), k.record_id >> 40) FROM unnest(%(keys)s::text[]) AS n (key)
    LEFT JOIN clusters_usagekey k ON k.cluster_id = %(cluster)s AND k.source_key = n.key)

-- name: MONTHS_BETWEEN_ANY
SELECT DISTINCT d FROM unnest(%(since)s::bigint[], %(until)s::bigint[]) AS u (since, until)
CROSS JOIN LATERAL billing_dropped_between(u.since, u.until) AS d ORDER BY d

-- name: OWN_MONTHS
-- Of which the tenant in scope has jobs in files alone.
SELECT DISTINCT month FROM billing_own_sealed_files(ARRAY(SELECT billing_dropped_months())) WHERE kind = 'jobs' ORDER BY month
