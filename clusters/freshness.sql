-- How old what is known of a tenant's clusters is, and was.

-- name: FRESHNESS
-- Of each cluster by name: how often it is pulled (null: by hand, as a file, or pushed) and whether that is paused, how far
-- its utilisation is read where that has a source of its own, since when its passes are known, and when in that time it was
-- behind: from `late` seconds, or two pulls if that is longer, after the moment up to which the newest pass had looked, to
-- the end of the next pass. Of the passes before the span, the last is looked at alone.
WITH pass AS (
    SELECT s.id AS cluster_id, r.ended_at,
           max(r.as_of) OVER w AS through, lead(r.ended_at, 1, %(moment)s) OVER w AS next
    FROM clusters_ownsource s CROSS JOIN LATERAL (
        (SELECT r.id, r.ended_at, r.as_of FROM clusters_ownreading r
         WHERE r.cluster_id = s.id AND r.started_at < to_timestamp(%(since)s)
         ORDER BY r.started_at DESC, r.id DESC LIMIT 1)
        UNION ALL
        SELECT r.id, r.ended_at, r.as_of FROM clusters_ownreading r
        WHERE r.cluster_id = s.id AND r.started_at >= to_timestamp(%(since)s) AND r.ended_at <= %(moment)s
    ) r
    WHERE s.name = ANY (%(clusters)s)
    WINDOW w AS (PARTITION BY s.id ORDER BY r.ended_at, r.id)
), delay AS (
    SELECT p.cluster_id, p.ended_at, p.next,
           greatest(p.ended_at, to_timestamp(%(since)s), p.through + greatest(%(late)s, 2 * s.every) * interval '1 second') AS begin
    FROM pass p JOIN clusters_ownsource s ON s.id = p.cluster_id
), span AS (
    SELECT s.name, s.every, s.paused, s.used_through,
           CASE WHEN count(d) > 0 THEN greatest(min(d.ended_at), to_timestamp(%(since)s)) END AS since,
           range_agg(tstzrange(d.begin, d.next)) FILTER (WHERE d.next > d.begin) AS behind
    FROM clusters_ownsource s LEFT JOIN delay d ON d.cluster_id = s.id
    WHERE s.name = ANY (%(clusters)s)
    GROUP BY s.id, s.name, s.every, s.paused, s.used_through
)
SELECT name, every, paused, used_through, since,
       coalesce(ARRAY(SELECT lower(b) FROM unnest(behind) AS b ORDER BY b DESC), '{}'),
       coalesce(ARRAY(SELECT upper(b) FROM unnest(behind) AS b ORDER BY b DESC), '{}')
FROM span ORDER BY name;
