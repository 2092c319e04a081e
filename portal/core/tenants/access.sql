-- name: ENTERED
-- The tenant of that name, and of the person in it, if they are, the role and the names on the clusters.
SELECT t.*, m.role, m.scheduler_users FROM tenants_tenant t LEFT JOIN tenants_membership m ON m.tenant_id = t.id AND m.user_id = %(user)s
WHERE t.slug = %(slug)s;
