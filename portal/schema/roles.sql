-- Whoever runs `migrate` owns the tables. Nothing else does: what serves pages and works signs in with a login that is
-- a member of four roles, none of which owns anything or bypasses row level security.
--   clustertab_operator  whoever runs the machines, the workers and what Stripe sends: every row, no change of a table
--   clustertab_portal    tenant pages: reads the rows of one tenant (`tenant_scope`)
--   clustertab_member    the same for a member who sees their own usage alone: narrower policies come to those of the above
--   clustertab_agent     what is done for one tenant, and computed for its pages by plans (`acting_scope`)
-- A query that forgets its filter shows or changes only the tenant's own rows; without a tenant it finds none.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['clustertab_operator', 'clustertab_portal', 'clustertab_member', 'clustertab_agent'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOBYPASSRLS', role);  -- or a DBA has made it
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- another database of this server made it meanwhile
        END;
    END LOOP;
END $$;

-- The owner is a member too, for its views and functions: row level security is forced upon it. `app.login` is the
-- login of everything else. What is granted already, as by a DBA, is not granted again. Nobody inherits the policies of
-- one tenant: they are taken on.
DO $$
DECLARE
    login text;
    role text;
BEGIN
    FOREACH login IN ARRAY ARRAY[current_user::text, nullif(current_setting('app.login', true), '')] LOOP
        CONTINUE WHEN login IS NULL;
        IF NOT pg_has_role(login, 'clustertab_operator', 'USAGE') THEN
            EXECUTE format('GRANT clustertab_operator TO %I WITH INHERIT TRUE', login);
        END IF;
        FOREACH role IN ARRAY ARRAY['clustertab_portal', 'clustertab_member', 'clustertab_agent'] LOOP
            IF NOT pg_has_role(login, role, 'SET') THEN
                EXECUTE format('GRANT %I TO %I WITH INHERIT FALSE', role, login);
            END IF;
        END LOOP;
    END LOOP;
END $$;

-- A member reads what the tenant's pages read, by the same rights and policies, and by its own besides.
DO $$
BEGIN
    IF NOT pg_has_role('clustertab_member', 'clustertab_portal', 'USAGE') THEN
        GRANT clustertab_portal TO clustertab_member WITH INHERIT TRUE, SET FALSE;
    END IF;
END $$;

GRANT USAGE ON SCHEMA public TO clustertab_operator, clustertab_portal, clustertab_agent;
