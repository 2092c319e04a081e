-- name: NUMBER
-- The committed events that have no place yet, in the order of their writing: behind all that have one. What commits
-- later is placed later, however early it was written.
WITH fresh AS MATERIALIZED (
    SELECT e.id, e.tenant_id, row_number() OVER (ORDER BY e.id) AS place,
           row_number() OVER (PARTITION BY e.tenant_id ORDER BY e.id) AS own
    FROM (SELECT id, tenant_id FROM events_event WHERE number IS NULL ORDER BY id LIMIT %(most)s) e
), base AS MATERIALIZED (
    SELECT coalesce(max(number), 0) AS number FROM events_eventcounter
), counted AS (
    INSERT INTO events_eventcounter AS c (tenant_id, sequence, number)
    SELECT f.tenant_id, max(f.own), base.number + max(f.place) FROM fresh f CROSS JOIN base
    GROUP BY f.tenant_id, base.number
    ON CONFLICT (tenant_id) DO UPDATE SET sequence = c.sequence + excluded.sequence, number = excluded.number
    RETURNING c.tenant_id, c.sequence, c.number
)
UPDATE events_event e
SET number = base.number + f.place, sequence = c.sequence - last.own + f.own
FROM fresh f CROSS JOIN base
JOIN (SELECT tenant_id, max(own) AS own FROM fresh GROUP BY tenant_id) last
    ON last.tenant_id IS NOT DISTINCT FROM f.tenant_id
JOIN counted c ON c.tenant_id IS NOT DISTINCT FROM f.tenant_id
WHERE e.id = f.id
RETURNING e.number
