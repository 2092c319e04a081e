-- name: OPEN
-- What quotas do to accounts now: of each the block that stands, is asked for, is being lifted or only watched, and what is
-- announced or done to its running jobs.
SELECT b.*, e.*, a.*, c.*
FROM (
    SELECT * FROM billing_quotablock WHERE quota_id = ANY (%(quotas)s::bigint[]) AND ended_at IS NULL
) b FULL JOIN (
    SELECT * FROM billing_quotaending WHERE quota_id = ANY (%(quotas)s::bigint[]) AND closed_at IS NULL
) e ON e.quota_id = b.quota_id AND e.account_id = b.account_id
JOIN clusters_account a ON a.id = coalesce(b.account_id, e.account_id) JOIN clusters_cluster c ON c.id = a.cluster_id
ORDER BY a.name, b.id, e.id;
