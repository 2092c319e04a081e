-- Numbers of runs of large tenants: policies.sql and rights.sql have the same.
ALTER TABLE billing_runcountsnapshot ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY billing_runcountsnapshot_of_tenant ON billing_runcountsnapshot FOR SELECT TO clustertab_portal
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
CREATE POLICY billing_runcountsnapshot_of_member ON billing_runcountsnapshot AS RESTRICTIVE FOR SELECT TO clustertab_member
    USING (false);
CREATE POLICY billing_runcountsnapshot_of_operator ON billing_runcountsnapshot TO clustertab_operator USING (true);
CREATE POLICY billing_runcountsnapshot_of_agent ON billing_runcountsnapshot TO clustertab_agent
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
GRANT SELECT ON billing_runcountsnapshot TO clustertab_portal;
GRANT SELECT, INSERT, UPDATE, DELETE ON billing_runcountsnapshot TO clustertab_operator, clustertab_agent;
GRANT USAGE, SELECT ON SEQUENCE billing_runcountsnapshot_id_seq TO clustertab_operator;
GRANT USAGE ON SEQUENCE billing_runcountsnapshot_id_seq TO clustertab_agent;
