-- name: BY_PREFIX
-- The key with this prefix, its maker, and the tenant and the project that it is limited to, if it is.
SELECT k.*, m.*, t.*, p.*
FROM api_apikey k JOIN tenants_user m ON m.id = k.maker_id
LEFT JOIN tenants_tenant t ON t.id = k.tenant_id
LEFT JOIN tenants_project p ON p.id = k.project_id
WHERE k.prefix = %(prefix)s;
