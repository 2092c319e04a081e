"""Which of its open jobs a tenant's scheduler no longer knows, told as `billing_openjob` tells of the others."""

from django.db import migrations

VIEW = """
CREATE VIEW billing_vanishedjob WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, v.since
FROM clusters_vanishedrun v JOIN billing_ratedjob j ON j.record_id = v.record_id
WHERE j.ended IS NULL AND j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint);
GRANT SELECT ON billing_vanishedjob TO clustertab_portal;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0009_open_jobs"),
        ("clusters", "0004_connections"),
    ]

    operations = [migrations.RunSQL(VIEW, "DROP VIEW billing_vanishedjob")]
