-- How old what is known of a tenant's clusters is, and was.

-- name: FRESHNESS
-- Of each cluster by name: how often it is pulled (null: by hand, as a file, or pushed), how far its utilisation is read
-- where that has a source of its own, since when its passes are known, and when in that time it was behind: from `late`
-- seconds, or two pulls if that is longer, after the moment up to which the newest pass had looked, to the end of the next
-- pass.
WITH pass AS (
    SELECT r.cluster_id, r.ended_at,
           max(r.as_of) OVER w AS through, lead(r.ended_at, 1, %(moment)s) OVER w AS next
    FROM clusters_ownreading r
    WHERE r.cluster = ANY (%(clusters)s) AND r.ended_at <= %(moment)s
    WINDOW w AS (PARTITION BY r.cluster_id ORDER BY r.ended_at, r.id)
), span AS (
    SELECT s.id, s.name, s.every, s.used_through, CASE WHEN count(p) > 0 THEN greatest(min(p.ended_at), to_timestamp(%(since)s)) END AS since,
           range_agg(tstzrange(
               greatest(p.ended_at, to_timestamp(%(since)s), p.through + greatest(%(late)s, 2 * s.every) * interval '1 second'), p.next
           )) FILTER (
               WHERE p.next > greatest(p.ended_at, to_timestamp(%(since)s), p.through + greatest(%(late)s, 2 * s.every) * interval '1 second')
           ) AS behind
    FROM clusters_ownsource s LEFT JOIN pass p ON p.cluster_id = s.id
    WHERE s.name = ANY (%(clusters)s)
    GROUP BY s.id, s.name, s.every, s.used_through
)
SELECT name, every, used_through, since,
       coalesce(ARRAY(SELECT lower(b) FROM unnest(behind) AS b ORDER BY b DESC), '{}'),
       coalesce(ARRAY(SELECT upper(b) FROM unnest(behind) AS b ORDER BY b DESC), '{}')
FROM span ORDER BY name;
