-- name: ENTERED
-- The tenant of that name, and of the person in it, if they are, the role and the names on the clusters.
SELECT t.*, m.role, m.scheduler_users FROM tenants_tenant t LEFT JOIN tenants_membership m ON m.tenant_id = t.id AND m.user_id = %(user)s
WHERE t.slug = %(slug)s;


-- name: ENTERED_AMONG
-- The same, with the first tenants by name that the person may open: their slugs and their names.
SELECT t.*, m.role, m.scheduler_users, o.slugs, o.names
FROM tenants_tenant t LEFT JOIN tenants_membership m ON m.tenant_id = t.id AND m.user_id = %(user)s
CROSS JOIN LATERAL (
    SELECT array_agg(x.slug ORDER BY x.name, x.id) AS slugs, array_agg(x.name ORDER BY x.name, x.id) AS names
    FROM (
        SELECT id, slug, name FROM tenants_tenant
        WHERE %(everywhere)s OR id IN (SELECT tenant_id FROM tenants_membership WHERE user_id = %(user)s)
        ORDER BY name, id LIMIT %(most)s
    ) x
) o
WHERE t.slug = %(slug)s;
