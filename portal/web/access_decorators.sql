-- name: CLUSTERS
-- The clusters that the tenant owns an account on now, or will, by name, with how far each is read; in each row, and in one
-- without a cluster where there is none, whether the tenant has, or had, wallets.
SELECT EXISTS (SELECT FROM billing_walletscheme s WHERE s.tenant_id = %(tenant)s), c.name, c.complete_through
FROM (VALUES (1)) AS one
LEFT JOIN clusters_cluster c ON c.id IN (
    SELECT a.cluster_id FROM clusters_account a JOIN tenants_ownership o ON o.account_id = a.id
    WHERE o.tenant_id = %(tenant)s AND (o.until IS NULL OR o.until > %(moment)s)
)
ORDER BY c.name;
