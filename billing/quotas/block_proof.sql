-- What `prove` looks for in the blocks that quotas demand.

-- name: MISSING
-- Accounts of quotas that were used up when they were looked at last, and have no row for it. A tenant whose quotas are
-- to be looked at again, or are released, is left out; so is an account that came since, and a quota that acts only
-- while a cluster is full.
SELECT t.slug, q.name, c.name, a.name
FROM billing_quota q JOIN tenants_tenant t ON t.id = q.tenant_id
CROSS JOIN LATERAL (
    SELECT * FROM billing_quotaperiod x WHERE x.quota_id = q.id ORDER BY x.start DESC LIMIT 1
) p
JOIN tenants_ownership o ON o.tenant_id = q.tenant_id AND (q.project_id IS NULL OR o.project_id = q.project_id)
 AND (o.since IS NULL OR o.since <= p.evaluated_at) AND (o.until IS NULL OR o.until > %(moment)s)
JOIN clusters_account a ON a.id = o.account_id AND q.account IN ('', a.name)
JOIN clusters_cluster c ON c.id = a.cluster_id AND q.cluster IN ('', c.name)
WHERE q.ended_at IS NULL AND q.action <> 'notify' AND NOT q.watch AND q.demand_above IS NULL
  AND p.start <= %(moment)s AND (p."end" IS NULL OR p."end" > %(moment)s)
  AND p.used >= greatest(p.amount + p.carried, 0) + p.borrowable
  AND (p.used > 0 OR (p.carried < 0 AND p.amount + p.carried <= 0))
  AND EXISTS (SELECT FROM billing_quotareview r WHERE r.tenant_id = q.tenant_id AND r.next_at > %(moment)s)
  AND NOT EXISTS (SELECT FROM billing_quotachange n WHERE n.tenant_id = q.tenant_id)
  AND NOT EXISTS (SELECT FROM billing_quotarelease f WHERE f.tenant_id = q.tenant_id AND f.until > %(moment)s)
  AND NOT EXISTS (
    SELECT FROM billing_quotablock b
    WHERE b.quota_id = q.id AND b.account_id = a.id AND b.ended_at IS NULL AND b.state IN ('requested', 'blocked')
  )
ORDER BY 1, 2, 3, 4 LIMIT %(shown)s;
