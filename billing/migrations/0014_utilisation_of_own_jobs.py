"""What a tenant may know of its own runs and of how busy they were, told as `billing_openjob` tells of the others.

The views read the clusters' tables as their owner, so that the portal role needs no right on them, and name the tenant
as the policies of row level security do. A run that changed its owner is seen by both; its hours each sees only as far
as its account was the tenant's in them.
"""

from django.db import migrations

MINE = "(SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)"

VIEWS = f"""
CREATE VIEW billing_ownrun WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, j.cluster, j.account, j."user", j.job_id, j.name, j.gpu_model, j.gpus, j.share_num,
       j.share_den, u.started, coalesce(u.ended, u.seen_until) AS finish, u.suspended
FROM billing_ratedjob j JOIN clusters_usagerecord u ON u.id = j.record_id
WHERE j.tenant_id = {MINE};

CREATE VIEW billing_ownhour WITH (security_barrier = true) AS
SELECT o.tenant_id, h.record_id, h.hour, h.busy, h.covered, h.source, h.metric
FROM (
    SELECT tenant_id, account_id,
           range_agg(int8range(extract(epoch FROM since)::bigint, extract(epoch FROM until)::bigint)) AS owned
    FROM tenants_ownership WHERE tenant_id = {MINE} GROUP BY tenant_id, account_id
) o
JOIN clusters_usagerecord u ON u.account_id = o.account_id
JOIN clusters_utilisationhour h ON h.record_id = u.id
WHERE o.owned && int8range(h.hour, h.hour + 3600);

GRANT SELECT ON billing_ownrun, billing_ownhour TO clustertab_portal;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0013_measures"),
        ("clusters", "0010_utilisation"),
    ]

    operations = [migrations.RunSQL(VIEWS, "DROP VIEW billing_ownhour; DROP VIEW billing_ownrun")]
