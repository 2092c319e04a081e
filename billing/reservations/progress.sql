-- How far the jobs of standing reservations have come, by the same seconds that quotas and wallets count of them.

-- name: PROGRESS
-- By reservation: tasks that ended, and of each run that goes on the seconds that are rated, and those that figures count
-- on since. A task that waits has none. A task that was requeued has ended when all of its runs have. In a row each with
-- what it holds, and the name of the quota or of who owns the wallet. Where it is asked for, also those that lapsed since.
SELECT a.*, r.*, c.*, x.ended, x.rated, x.counted_on, coalesce(q.name, nullif(w."user", ''), p.name, t.name)
FROM billing_reservation r JOIN clusters_cluster c ON c.id = r.cluster_id
LEFT JOIN billing_reservedamount a ON a.reservation_id = r.id
LEFT JOIN billing_quota q ON q.id = a.quota_id LEFT JOIN billing_wallet w ON w.id = a.wallet_id
LEFT JOIN tenants_project p ON p.id = w.project_id LEFT JOIN tenants_tenant t ON t.id = w.tenant_id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(CASE WHEN j.ended IS NULL OR j.turn > 1 THEN 0 WHEN j.job_id LIKE '%%[%%' THEN r.tasks ELSE 1 END),
                    0)::bigint AS ended,
           coalesce(array_agg(greatest(j.seen_until - j.started - j.suspended, 0) ORDER BY j.record_id)
                    FILTER (WHERE j.ended IS NULL AND j.started IS NOT NULL), '{}') AS rated,
           coalesce(array_agg(coalesce((
               SELECT greatest(least(greatest(o.read_until, o.seen_until) + o.ahead, %(second)s) - o.seen_until, 0)
               FROM billing_openrun o
               WHERE o.tenant_id = j.tenant_id AND o.record_id = j.record_id
                 AND o.seen_until >= coalesce(o.read_until, o.seen_until) - %(unseen)s
           ), 0) ORDER BY j.record_id) FILTER (WHERE j.ended IS NULL AND j.started IS NOT NULL), '{}') AS counted_on
    FROM (
        SELECT j.*, row_number() OVER (PARTITION BY j.job_id ORDER BY j.ended NULLS FIRST, j.record_id) AS turn
        FROM billing_reservationrun n JOIN billing_ratedjob j ON j.record_id = n.record_id AND j.tenant_id = n.tenant_id
        WHERE n.reservation_id = r.id AND n.tenant_id = r.tenant_id OFFSET 0
    ) j
) x
WHERE r.tenant_id = ANY (%(tenants)s) AND r.id <> %(besides)s AND (
    r.released_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > to_timestamp(%(second)s))
    OR r.released_at > %(lapsed_since)s::timestamptz AND r."end" IN ('never-came', 'vanished')  -- as LAPSED of the model
)
ORDER BY r.id, q.name, a.id;

-- name: LINK
-- The runs of jobs that reservations are for, as far as they are new: of an array those of its tasks, and of a job whose
-- run has ended the one that it was requeued for.
WITH wanted AS MATERIALIZED (
    SELECT r.id, r.tenant_id, c.name AS cluster, r.job_id, r.tasks, r.runs_after, r.placed_at
    FROM billing_reservation r JOIN clusters_cluster c ON c.id = r.cluster_id
    WHERE r.released_at IS NULL AND r.job_id <> ''
      AND (r.tasks > 1 OR NOT EXISTS (
          SELECT FROM billing_reservationrun n
          JOIN billing_ratedjob j ON j.record_id = n.record_id AND j.tenant_id = n.tenant_id
          WHERE n.reservation_id = r.id AND j.ended IS NULL))
)
INSERT INTO billing_reservationrun (reservation_id, tenant_id, record_id)
SELECT w.id, w.tenant_id, j.record_id
FROM (SELECT tenant_id, extract(epoch FROM min(placed_at))::bigint - 86400 AS since FROM wanted GROUP BY 1) t
CROSS JOIN LATERAL (
    SELECT record_id, cluster, job_id, ended FROM billing_ratedjob
    WHERE tenant_id = t.tenant_id AND ended IS NULL AND meter = ''
    UNION ALL
    SELECT record_id, cluster, job_id, ended FROM billing_ratedjob
    WHERE tenant_id = t.tenant_id AND ended IS NOT NULL AND meter = '' AND shown_at >= t.since
) j JOIN wanted w ON w.tenant_id = t.tenant_id AND w.cluster = j.cluster
 AND w.job_id = CASE WHEN w.tasks > 1 THEN split_part(j.job_id, '_', 1) ELSE j.job_id END
WHERE j.ended IS NULL OR j.ended > w.runs_after
ON CONFLICT DO NOTHING RETURNING tenant_id;

-- name: OVER
-- Standing reservations that are to be released, and why: all runs of the job ended; nobody came; or the cluster was read
-- for a whole day and showed no run of it that waits or goes on. Of one, where `only` says which.
SELECT r.id, CASE WHEN r.expires_at <= %(moment)s THEN 'never-came' WHEN x.ended >= r.tasks THEN 'ended' ELSE 'vanished' END
FROM billing_reservation r JOIN clusters_cluster c ON c.id = r.cluster_id CROSS JOIN LATERAL (
    SELECT sum(CASE WHEN j.ended IS NULL OR j.turn > 1 THEN 0 WHEN j.job_id LIKE '%%[%%' THEN r.tasks ELSE 1 END) AS ended,
           max(CASE WHEN j.ended IS NULL THEN j.last_seen ELSE to_timestamp(j.ended) END) AS sight
    FROM (
        SELECT j.job_id, j.ended, coalesce(v.since, u.last_seen) AS last_seen,
               row_number() OVER (PARTITION BY j.job_id ORDER BY j.ended NULLS FIRST, j.record_id) AS turn
        FROM billing_reservationrun n JOIN billing_ratedjob j ON j.record_id = n.record_id AND j.tenant_id = n.tenant_id
        JOIN clusters_usagerecord u ON u.id = n.record_id LEFT JOIN clusters_vanishedrun v ON v.record_id = n.record_id
        WHERE n.reservation_id = r.id OFFSET 0
    ) j
) x
WHERE r.released_at IS NULL AND (%(only)s::bigint IS NULL OR r.id = %(only)s) AND (
    r.expires_at <= %(moment)s OR x.ended >= r.tasks
    OR r.job_id <> '' AND c.complete_through >= greatest(r.placed_at, x.sight) + make_interval(hours => %(hours)s)
) ORDER BY r.id;

-- name: RATED
-- By standing reservation and run that goes on: the GPU-seconds that its record says, and those that are rated.
SELECT r.id, j.job_id, greatest(j.seen_until - j.started - j.suspended, 0) * j.gpus, coalesce((
    SELECT sum(u.units) FROM billing_ratedusage u
    WHERE u.record_id = j.record_id AND u.tenant_id = j.tenant_id AND u.resource = 'gpu'
), 0)::bigint
FROM billing_reservation r JOIN billing_reservationrun n ON n.reservation_id = r.id AND n.tenant_id = r.tenant_id
JOIN billing_ratedjob j ON j.record_id = n.record_id AND j.tenant_id = n.tenant_id
WHERE r.released_at IS NULL AND j.ended IS NULL AND j.started IS NOT NULL AND j.gpus > 0;
