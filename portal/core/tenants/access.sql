-- name: ENTERED
-- The tenant of that name, and the role of the person in it, if they have one.
SELECT t.*, m.role FROM tenants_tenant t LEFT JOIN tenants_membership m ON m.tenant_id = t.id AND m.user_id = %(user)s
WHERE t.slug = %(slug)s;
