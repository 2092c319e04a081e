-- What is staged of a month whose records are in no table.

-- name: KEYS
SELECT DISTINCT source_key FROM usage_stage WHERE coalesce(key_month, held_month) = %(month)s ORDER BY source_key

-- name: SETTLE
-- What was quarantined while the files could not be read, now that it can: it is known there, or is stored as news.
UPDATE clusters_quarantined q SET resolved_at = %(moment)s, resolution = 'The files of its month could be read.'
WHERE q.cluster_id = %(cluster)s AND q.code = 'sealed-month' AND q.resolved_at IS NULL AND q.source_key IN (
    SELECT source_key FROM usage_stage WHERE coalesce(key_month, held_month) = %(month)s)

-- name: LEAVE_OUT
DELETE FROM usage_stage WHERE coalesce(key_month, held_month) = %(month)s

-- name: MONTHS_OF_KEYS
SELECT d FROM billing_dropped_months() AS d WHERE month_number(extract(epoch FROM d)::bigint) IN (
    SELECT coalesce(usage_key_month(n.key), k.record_id >> 40) FROM unnest(%(keys)s::text[]) AS n (key)
    LEFT JOIN clusters_usagekey k ON k.cluster_id = %(cluster)s AND k.source_key = n.key)
