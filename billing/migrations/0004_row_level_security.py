"""Tenant pages read as the role `clustertab_portal`, which sees the rows of one tenant and nothing else.

`tenant_scope()` takes the role and names the tenant for one transaction. A query that forgets its
filter shows only the tenant's own rows; without a tenant it shows none.
"""

from django.db import migrations

ROLE = """
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'clustertab_portal') THEN
        CREATE ROLE clustertab_portal NOLOGIN NOBYPASSRLS;  -- or a DBA has made it for a login that may not
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;  -- another database of this server made it meanwhile
END $$;
DO $$
BEGIN
    IF NOT pg_has_role(current_user, 'clustertab_portal', 'MEMBER') THEN
        EXECUTE format('GRANT clustertab_portal TO %I', current_user);
    END IF;
END $$;
GRANT USAGE ON SCHEMA public TO clustertab_portal;
"""

SCOPED = (
    "tenants_project",
    "tenants_ownership",
    "billing_subscription",
    "billing_billingperiod",
    "billing_ratedusage",
    "billing_ratedjob",
    "billing_periodtotal",
    "billing_daytotal",
    "billing_usertotal",
    "billing_invoice",
    "billing_invoiceline",
    "billing_invoicedocument",
    "billing_payment",
)

MINE = "(SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)"


def _protect(table: str, column: str) -> tuple[str, str]:
    return (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
        f"CREATE POLICY {table}_of_tenant ON {table} FOR SELECT TO clustertab_portal USING ({column} = {MINE});"
        f"GRANT SELECT ON {table} TO clustertab_portal;",
        f"REVOKE SELECT ON {table} FROM clustertab_portal;"
        f"DROP POLICY {table}_of_tenant ON {table};"
        f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;",
    )


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_rated_usage"), ("tenants", "0001_initial")]
    operations = [
        migrations.RunSQL(ROLE, migrations.RunSQL.noop),
        migrations.RunSQL(*_protect("tenants_tenant", "id")),
        *[migrations.RunSQL(*_protect(table, "tenant_id")) for table in SCOPED],
    ]
