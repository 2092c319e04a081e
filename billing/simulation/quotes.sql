-- name: ACCOUNT
-- The account that the tenant owns on the cluster at the moment, of that name, or where none is named the first. Those of
-- `users` alone name accounts of projects that their jobs are in.
SELECT o.*, a.*, c.*, p.* FROM tenants_ownership o JOIN clusters_account a ON a.id = o.account_id
JOIN clusters_cluster c ON c.id = a.cluster_id JOIN tenants_project p ON p.id = o.project_id
WHERE o.tenant_id = %(tenant)s AND c.name = %(cluster)s AND (%(account)s = '' OR a.name = %(account)s AND (
      %(users)s::text[] IS NULL
      OR EXISTS (SELECT FROM billing_usageseries s
                 WHERE s.tenant_id = o.tenant_id AND s.project_id = o.project_id AND s."user" = ANY (%(users)s))
      OR EXISTS (SELECT FROM billing_ratedjob j WHERE j.tenant_id = o.tenant_id AND j.project_id = o.project_id
                 AND j.ended IS NULL AND j."user" = ANY (%(users)s))
  ))
  AND (o.since IS NULL OR o.since <= %(moment)s) AND (o.until IS NULL OR o.until > %(moment)s)
ORDER BY a.name LIMIT 1;
