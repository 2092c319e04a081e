"""The portal role may read the prices by which its tenant's own usage was rated, and their currency.

Nobody sees a price that was negotiated with somebody else, nor one that is not in use yet.
"""

from django.db import migrations

MINE = "(SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)"

# Since PostgreSQL 16, whoever creates a role is a member of it that may not take it on.
TAKE = """
DO $$
BEGIN
    EXECUTE format('GRANT clustertab_portal TO %I', current_user);
EXCEPTION WHEN insufficient_privilege THEN
    NULL;  -- whoever made the role has granted it
END $$
"""

GRANT = f"""
ALTER TABLE billing_price ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_price_of_own_usage ON billing_price FOR SELECT TO clustertab_portal
    USING (id IN (SELECT t.price_id FROM billing_periodtotal t WHERE t.tenant_id = {MINE}));
GRANT SELECT ON billing_price TO clustertab_portal;

ALTER TABLE billing_planversion ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_planversion_of_own_usage ON billing_planversion FOR SELECT TO clustertab_portal
    USING (id IN (SELECT p.version_id FROM billing_price p));
GRANT SELECT (id, plan_id) ON billing_planversion TO clustertab_portal;

ALTER TABLE billing_plan ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_plan_of_own_usage ON billing_plan FOR SELECT TO clustertab_portal
    USING (id IN (SELECT v.plan_id FROM billing_planversion v));
GRANT SELECT (id, currency) ON billing_plan TO clustertab_portal;
"""

REVOKE = "".join(
    f"REVOKE SELECT {columns} ON {table} FROM clustertab_portal;"
    f"DROP POLICY {table}_of_own_usage ON {table};"
    f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;"
    for table, columns in (
        ("billing_plan", "(id, currency)"),
        ("billing_planversion", "(id, plan_id)"),
        ("billing_price", ""),
    )
)


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_row_level_security")]
    operations = [migrations.RunSQL(TAKE, migrations.RunSQL.noop), migrations.RunSQL(GRANT, REVOKE)]
