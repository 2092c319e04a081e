-- name: BY_PREFIX
-- The key with this prefix, its maker, the tenant and the project that it is limited to, if it is, and the maker's role
-- and names on the clusters in that tenant, if they are a member.
SELECT k.*, m.*, t.*, p.*, s.role, s.scheduler_users
FROM api_apikey k JOIN tenants_user m ON m.id = k.maker_id
LEFT JOIN tenants_tenant t ON t.id = k.tenant_id
LEFT JOIN tenants_project p ON p.id = k.project_id
LEFT JOIN tenants_membership s ON s.tenant_id = k.tenant_id AND s.user_id = k.maker_id
WHERE k.prefix = %(prefix)s;
