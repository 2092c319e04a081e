"""The jobs that run or wait: an index of them, and what a tenant may know of what its own were asked for.

The view reads the clusters' table as its owner, so that the portal role needs no right on it, and names
the tenant as the policies of row level security do.
"""

from django.db import migrations, models

VIEW = """
CREATE VIEW billing_openjob WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, u.requested, u.time_limit
FROM billing_ratedjob j JOIN clusters_usagerecord u ON u.id = j.record_id
WHERE j.ended IS NULL AND j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint);
GRANT SELECT ON billing_openjob TO clustertab_portal;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0008_costliest_jobs_from_the_index"),
        ("clusters", "0003_zone_is_kept"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="ratedjob",
            index=models.Index(
                fields=["tenant", "-shown_at", "-record_id"],
                condition=models.Q(ended__isnull=True),
                name="open_jobs_of_tenant",
            ),
        ),
        migrations.RunSQL(VIEW, "DROP VIEW billing_openjob"),
    ]
