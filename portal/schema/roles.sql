-- Tenant pages read as the role clustertab_portal, which sees the rows of one tenant and nothing else:
-- `tenant_scope()` takes the role and names the tenant for one transaction. A query that forgets its filter
-- shows only the tenant's own rows; without a tenant it shows none.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'clustertab_portal') THEN
        CREATE ROLE clustertab_portal NOLOGIN NOBYPASSRLS;  -- or a DBA has made it for a login that may not
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;  -- another database of this server made it meanwhile
END $$;

-- Since PostgreSQL 16, whoever creates a role is a member of it that may not take it on.
DO $$
BEGIN
    EXECUTE format('GRANT clustertab_portal TO %I', current_user);
EXCEPTION WHEN insufficient_privilege THEN
    NULL;  -- whoever made the role has granted it
END $$;

GRANT USAGE ON SCHEMA public TO clustertab_portal;
