-- What the two roles may that see more than one tenant's pages read, and that row level security binds the owner too.

-- Whoever runs the machines: every row of every table, but neither the tables themselves nor what migrations keep.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clustertab_operator;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO clustertab_operator;
REVOKE INSERT, UPDATE, DELETE ON schema_level, django_migrations, audit_entry, audit_commit FROM clustertab_operator;
GRANT UPDATE (before, after, who) ON audit_entry TO clustertab_operator;  -- to erase people
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class
                WHERE relrowsecurity AND relnamespace = 'public'::regnamespace ORDER BY relname LOOP
        EXECUTE format('ALTER TABLE %1$I FORCE ROW LEVEL SECURITY;
                        CREATE POLICY %2$I ON %1$I TO clustertab_operator USING (true)', name, name || '_of_operator');
    END LOOP;
END $$;

-- What is done for one tenant, and computed for its pages by plans that they may not read: its own rows. The history
-- is for nobody who acts for a tenant.
DO $$
DECLARE
    me constant text := '(SELECT nullif(current_setting(''app.tenant_id'', true), '''')::bigint)';
    given constant text[] := ARRAY[
        'billing_allowance', 'billing_approvallimit', 'billing_closeschedule', 'billing_commitment', 'billing_concurrencylimit', 'billing_discount',
        'billing_dunningpolicy', 'billing_fee', 'billing_limitedaccount', 'billing_payer', 'billing_price', 'billing_sealedfile', 'billing_signup', 'tenants_identitygrant', 'tenants_ownership', 'tenants_project'
    ];  -- by operators alone
    name text;
BEGIN
    FOR name IN SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
                WHERE c.relrowsecurity AND c.relnamespace = 'public'::regnamespace
                  AND c.relname NOT IN ('audit_entry', 'tenants_membership') LOOP
        EXECUTE format('CREATE POLICY %2$I ON %1$I TO clustertab_agent USING (tenant_id = %3$s);
                        GRANT SELECT ON %1$I TO clustertab_agent', name, name || '_of_agent', me);
        IF name <> ALL (given) THEN
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON %I TO clustertab_agent', name);
        END IF;
    END LOOP;
    EXECUTE format('CREATE POLICY tenants_tenant_of_agent ON tenants_tenant TO clustertab_agent USING (id = %s);
                    GRANT SELECT, UPDATE ON tenants_tenant TO clustertab_agent', me);  -- which it locks
    -- Who pays for others, or is paid for, computes what it owes from the use and the invoices of both.
    FOREACH name IN ARRAY ARRAY[
        'billing_billingperiod', 'billing_daytotal', 'billing_invoice', 'billing_invoiceline', 'billing_manualline',
        'billing_periodtotal', 'billing_ratedusage', 'billing_subscription', 'tenants_ownership', 'tenants_project',
        'tenants_tenant'
    ] LOOP
        EXECUTE format(
            'CREATE POLICY %2$I ON %1$I FOR SELECT TO clustertab_agent USING (
                 %3$I IN (SELECT y.tenant_id FROM billing_payer y WHERE y.payer_id = %4$s)
                 OR %3$I IN (SELECT y.payer_id FROM billing_payer y WHERE y.tenant_id = %4$s))',
            name, name || '_of_payer_of_agent', CASE name WHEN 'tenants_tenant' THEN 'id' ELSE 'tenant_id' END, me);
    END LOOP;
    EXECUTE format('CREATE POLICY billing_payer_of_payer_of_agent ON billing_payer FOR SELECT TO clustertab_agent
                        USING (payer_id = %s)', me);
    -- Plans that it, or one of those, is or was on; what was negotiated with somebody else alone is not among them.
    FOREACH name IN ARRAY ARRAY['billing_allowance', 'billing_commitment', 'billing_discount', 'billing_fee',
                                'billing_price'] LOOP
        EXECUTE format('CREATE POLICY %2$I ON %1$I FOR SELECT TO clustertab_agent USING (
                            version_id IN (SELECT v.id FROM billing_planversion v)
                            AND (tenant_id IS NULL OR tenant_id IN (SELECT t.id FROM tenants_tenant t)))',
                       name, name || '_of_plan_of_agent');
    END LOOP;
END $$;
-- And those that everybody may choose: an owner changes to one of them, and the change is a subscription of its own.
CREATE POLICY billing_plan_of_agent ON billing_plan FOR SELECT TO clustertab_agent
    USING (public OR id IN (SELECT s.plan_id FROM billing_subscription s
                            UNION ALL SELECT unnest(s.replaced_plans) FROM billing_subscription s));
CREATE FUNCTION plan_is_public(plan bigint) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM billing_plan p WHERE p.id = plan AND p.public)
$$;
REVOKE EXECUTE ON FUNCTION plan_is_public(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION plan_is_public(bigint) TO clustertab_agent;
-- No other subscription is the tenant's to write: one to the plan of somebody else would show what that costs.
CREATE POLICY billing_subscription_begun_by_agent ON billing_subscription AS RESTRICTIVE FOR INSERT TO clustertab_agent
    WITH CHECK (plan_is_public(plan_id));
CREATE POLICY billing_subscription_changed_by_agent ON billing_subscription AS RESTRICTIVE FOR UPDATE
    TO clustertab_agent USING (plan_is_public(plan_id));
CREATE POLICY billing_subscription_withdrawn_by_agent ON billing_subscription AS RESTRICTIVE FOR DELETE
    TO clustertab_agent USING (plan_is_public(plan_id));
CREATE POLICY billing_planversion_of_agent ON billing_planversion FOR SELECT TO clustertab_agent
    USING (plan_id IN (SELECT p.id FROM billing_plan p));
ALTER TABLE billing_planquota ENABLE ROW LEVEL SECURITY;
ALTER TABLE billing_planquota FORCE ROW LEVEL SECURITY;
CREATE POLICY billing_planquota_of_operator ON billing_planquota TO clustertab_operator USING (true);
CREATE POLICY billing_planquota_of_agent ON billing_planquota FOR SELECT TO clustertab_agent
    USING (version_id IN (SELECT v.id FROM billing_planversion v));
GRANT SELECT ON billing_planquota TO clustertab_agent;
CREATE POLICY billing_dunningpolicy_of_all_of_agent ON billing_dunningpolicy FOR SELECT TO clustertab_agent
    USING (tenant_id IS NULL);
GRANT SELECT ON billing_plan, billing_planversion, billing_dunningpolicy TO clustertab_agent;

-- Rows that hang from a tenant's without naming it: its own by those.
DO $$
DECLARE
    child text[];
BEGIN
    FOREACH child SLICE 1 IN ARRAY ARRAY[
        ['billing_accrual', 'wallet_id', 'billing_wallet'], ['billing_walletday', 'wallet_id', 'billing_wallet'],
        ['billing_grantrule', 'scheme_id', 'billing_walletscheme'], ['billing_debtterms', 'scheme_id', 'billing_walletscheme'],
        ['billing_movedmoney', 'attempt_id', 'billing_paymentattempt'],
        ['billing_movedcredit', 'attempt_id', 'billing_paymentattempt']
    ] LOOP
        EXECUTE format(
            'ALTER TABLE %1$I ENABLE ROW LEVEL SECURITY;
             ALTER TABLE %1$I FORCE ROW LEVEL SECURITY;
             CREATE POLICY %4$I ON %1$I TO clustertab_operator USING (true);
             CREATE POLICY %5$I ON %1$I TO clustertab_agent USING (%2$I IN (SELECT p.id FROM %3$I p));
             GRANT SELECT, INSERT, UPDATE, DELETE ON %1$I TO clustertab_agent',
            child[1], child[2], child[3], child[1] || '_of_operator', child[1] || '_of_agent');
    END LOOP;
END $$;

-- The accounts that are or were its own, or of those it pays for or who pay for it.
CREATE POLICY clusters_account_of_agent ON clusters_account FOR SELECT TO clustertab_agent
    USING (id IN (SELECT o.account_id FROM tenants_ownership o));
GRANT SELECT ON clusters_account TO clustertab_agent;

-- Its members, by their addresses and roles, and whoever made a key or a webhook of its.
CREATE POLICY tenants_membership_of_agent ON tenants_membership TO clustertab_agent
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_membership TO clustertab_agent;
CREATE POLICY tenants_user_of_agent ON tenants_user FOR SELECT TO clustertab_agent
    USING (id IN (SELECT m.user_id FROM tenants_membership m) OR id IN (SELECT k.maker_id FROM api_apikey k)
           OR id IN (SELECT w.maker_id FROM webhooks_webhook w));
GRANT SELECT (id, email, first_name, last_name, is_active, operator_role) ON tenants_user TO clustertab_agent;

-- What belongs to no tenant: who issues the invoices, what clusters are called and how far they are read, what we are
-- called at Stripe, and effects that follow a commit.
GRANT SELECT ON billing_seller, billing_taxrate, clusters_cluster TO clustertab_agent;
GRANT SELECT ON tenants_brand, tenants_brandlogo TO clustertab_portal, clustertab_agent;  -- of every page and e-mail
GRANT SELECT, INSERT, UPDATE ON billing_gatewayaccount TO clustertab_agent;
GRANT INSERT, SELECT (id, created_at, available_at) ON outbox_outboxmessage TO clustertab_agent; -- what INSERT returns
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO clustertab_agent;

-- Names for the history of a tenant. They run as the tables' owner, since people who have left are no rows that whoever
-- acts for a tenant may read; a tenant's role gets its own, and none without a tenant.
CREATE FUNCTION history_beginnings(tables text[], keys text[]) RETURNS TABLE ("table" text, key text, after jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT e."table", e.key, e.after FROM unnest(tables, keys) AS k ("table", key)
    JOIN audit_entry e ON e."table" = k."table" AND e.key = k.key AND e.operation = 'insert'
    WHERE current_setting('role') NOT IN ('clustertab_portal', 'clustertab_member', 'clustertab_agent')
       OR e.tenant_id = nullif(current_setting('app.tenant_id', true), '')::bigint
$$;
CREATE FUNCTION history_people(numbers bigint[]) RETURNS TABLE (id bigint, email text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT u.id, u.email FROM tenants_user u WHERE u.id = ANY (numbers) AND (
        current_setting('role') NOT IN ('clustertab_portal', 'clustertab_member', 'clustertab_agent')
        OR u.id IN (SELECT (coalesce(e.after, e.before) ->> 'user_id')::bigint FROM audit_entry e
                    WHERE e."table" = 'tenants_membership'
                      AND e.tenant_id = nullif(current_setting('app.tenant_id', true), '')::bigint)
        OR u.id IN (SELECT k.maker_id FROM api_apikey k
                    WHERE k.tenant_id = nullif(current_setting('app.tenant_id', true), '')::bigint))
$$;
REVOKE EXECUTE ON FUNCTION history_beginnings(text[], text[]), history_people(bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION history_beginnings(text[], text[]), history_people(bigint[])
    TO clustertab_operator, clustertab_agent;  -- not to the pages' role, of which members are who see their own usage alone
