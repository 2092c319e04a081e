-- Exports of the charges of all tenants.

-- name: SNAPSHOT
SELECT pg_current_snapshot()::text

-- name: STARTED_BEFORE
-- Exports that started before an erasure was committed. In a database that was restored, transactions have other
-- numbers: so what started before the erasure began is one of them, whatever its snapshot says.
SELECT id
FROM billing_focusexport
WHERE started_at IS NOT NULL
  AND NOT coalesce(
      started_at > %(begun_at)s AND pg_visible_in_snapshot(%(erasure)s::xid8, nullif(snapshot, '')::pg_snapshot),
      false
  )
ORDER BY id
FOR UPDATE
