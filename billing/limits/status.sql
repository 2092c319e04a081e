-- name: HELD
-- Limits in force, of a tenant or these, each with the accounts in its scope that the tenant owns now, if any: with their
-- limits as they were written, and by GPU model what their running jobs hold. A MIG slice counts as one GPU, of Slurm's
-- shards as many as make one up.
WITH chosen AS MATERIALIZED (
    SELECT * FROM billing_concurrencylimit
    WHERE ended_at IS NULL AND (tenant_id = %(tenant)s::bigint OR id = ANY (%(limits)s::bigint[]))
), running AS MATERIALIZED (
    SELECT j.tenant_id, j.cluster, j.account, j.gpu_model, s.num, s.den, sum(j.gpus) AS gpus, count(*) AS jobs
    FROM billing_ratedjob j LEFT JOIN clusters_cluster k ON k.name = j.cluster CROSS JOIN LATERAL (
        SELECT CASE WHEN x THEN j.share_num ELSE 1 END AS num, CASE WHEN x THEN j.share_den ELSE 1 END AS den
        FROM (SELECT j.mig_profile = '' AND k.kind = 'slurm' AS x) x
    ) s
    WHERE j.tenant_id IN (SELECT tenant_id FROM chosen) AND j.meter = '' AND j.ended IS NULL AND j.started IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5, 6
)
SELECT m.*, p.*, o.*, a.*, c.*, l.*, r.gpu_model, r.gpus * r.num, r.den, r.jobs
FROM chosen m LEFT JOIN tenants_project p ON p.id = m.project_id
LEFT JOIN (tenants_ownership o JOIN clusters_account a ON a.id = o.account_id JOIN clusters_cluster c ON c.id = a.cluster_id)
  ON o.tenant_id = m.tenant_id AND (o.since IS NULL OR o.since <= %(moment)s::timestamptz)
 AND (o.until IS NULL OR o.until > %(moment)s::timestamptz)
 AND (m.project_id IS NULL OR m.project_id = o.project_id) AND m.account IN ('', a.name) AND m.cluster IN ('', c.name)
LEFT JOIN billing_limitedaccount l ON l.account_id = a.id AND l.tenant_id = o.tenant_id AND l.ended_at IS NULL
LEFT JOIN running r ON r.tenant_id = o.tenant_id AND r.cluster = c.name AND r.account = a.name
ORDER BY m.name, m.id, c.name, a.name, o.id;
