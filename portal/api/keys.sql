-- name: BY_PREFIX
-- The key with this prefix, the tenant and the project that it is limited to, if it is, the maker's role and names on the
-- clusters in that tenant, if they are a member, and of the maker what a request needs: each column takes time.
SELECT k.*, t.*, p.name, s.role, s.scheduler_users, m.is_active, m.email, m.operator_role
FROM api_apikey k JOIN tenants_user m ON m.id = k.maker_id
LEFT JOIN tenants_tenant t ON t.id = k.tenant_id
LEFT JOIN tenants_project p ON p.id = k.project_id
LEFT JOIN tenants_membership s ON s.tenant_id = k.tenant_id AND s.user_id = k.maker_id
WHERE k.prefix = %(prefix)s;
