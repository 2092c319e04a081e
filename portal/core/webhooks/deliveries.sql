-- name: CREATE
-- A delivery of each event that has just got its place, to each webhook that is on and wants it; in their order, in
-- which they are listed.
INSERT INTO webhooks_delivery (webhook_id, tenant_id, event_number, type, created_at, state, attempts, next_at, answer, error)
SELECT w.id, w.tenant_id, e.number, e.type, %(moment)s, 'waiting', 0, %(moment)s, '', ''
FROM events_event e
JOIN webhooks_webhook w
    ON w.state = 'active' AND (w.tenant_id IS NULL OR w.tenant_id = e.tenant_id)
    AND (w.event_types = '{}' OR e.type = ANY (w.event_types))
WHERE e.number BETWEEN %(first)s AND %(last)s
ORDER BY e.number, w.id
ON CONFLICT DO NOTHING

-- name: RESEND
-- All that the webhook wants of what happened since, also while it was off; what was sent is sent again.
INSERT INTO webhooks_delivery AS d
    (webhook_id, tenant_id, event_number, type, created_at, state, attempts, next_at, answer, error)
SELECT w.id, w.tenant_id, e.number, e.type, %(moment)s, 'waiting', 0, %(moment)s, '', ''
FROM webhooks_webhook w
JOIN events_event e
    ON e.number IS NOT NULL AND e.at >= %(start)s AND (w.tenant_id IS NULL OR w.tenant_id = e.tenant_id)
    AND (w.event_types = '{}' OR e.type = ANY (w.event_types))
WHERE w.id = %(webhook)s
ON CONFLICT (webhook_id, event_number) WHERE event_number IS NOT NULL DO UPDATE
    SET state = 'waiting', attempts = 0, next_at = excluded.next_at
    WHERE d.state <> 'delivered' OR %(delivered)s

-- name: DUE
-- Claims webhooks for which something is due and nobody sends: those that answer before those that fail, of which
-- there are at most so many.
WITH due AS (
    SELECT w.id, w.failing_since FROM webhooks_webhook w
    WHERE w.state = 'active' AND coalesce(w.claimed_until, '-infinity') <= %(moment)s
        AND coalesce(w.paused_until, '-infinity') <= %(moment)s
        AND EXISTS (SELECT FROM webhooks_delivery d WHERE d.webhook_id = w.id AND d.next_at <= %(moment)s)
    ORDER BY w.failing_since NULLS FIRST, w.claimed_until NULLS FIRST, w.id
    FOR NO KEY UPDATE SKIP LOCKED
    LIMIT %(most)s
), ranked AS (
    SELECT id, failing_since, row_number() OVER (PARTITION BY failing_since IS NULL) AS place FROM due
)
UPDATE webhooks_webhook w SET claimed_until = %(end)s
FROM ranked r
WHERE w.id = r.id AND (r.failing_since IS NULL OR r.place <= %(most_failing)s)
RETURNING w.id
