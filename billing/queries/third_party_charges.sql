-- name: DAYS_AND_MARKS
-- By user and day what its use costs at the prices of first units, undivided; and in rows without a user up to when each
-- cluster is read on which one of the tenants owns accounts.
SELECT t.tenant_id, t.day, t.share_den, sum(t.units * c.unit_price), NULL::timestamptz
FROM billing_daytotal t JOIN billing_price c ON c.id = t.price_id
WHERE t.tenant_id = ANY (%(users)s::bigint[]) AND t.day >= %(first_day)s GROUP BY 1, 2, 3
UNION ALL
SELECT NULL, NULL, NULL, NULL, c.complete_through FROM clusters_cluster c WHERE c.id IN (
    SELECT a.cluster_id FROM tenants_ownership o JOIN clusters_account a ON a.id = o.account_id
    WHERE o.tenant_id = ANY (%(tenants)s::bigint[]) AND (o.until IS NULL OR o.until > %(moment)s)
);
