-- What a tenant may know of tables that it has no right on. The views read them as their owner and name the tenant as
-- the policies of row level security do.

-- The jobs of its own that run or wait: what they were asked for, and what a MIG slice counts on their cluster.
CREATE VIEW billing_openjob WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, u.requested, u.time_limit, c.shares
FROM billing_ratedjob j JOIN clusters_usagerecord u ON u.id = j.record_id
JOIN clusters_cluster c ON c.id = u.cluster_id
WHERE j.ended IS NULL AND j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint);
GRANT SELECT ON billing_openjob TO clustertab_portal;

-- Those of them that the scheduler no longer knows.
CREATE VIEW billing_vanishedjob WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, v.since
FROM clusters_vanishedrun v JOIN billing_ratedjob j ON j.record_id = v.record_id
WHERE j.ended IS NULL AND j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint);
GRANT SELECT ON billing_vanishedjob TO clustertab_portal;

-- Its own runs and how busy they were. A run that changed its owner is seen by both; its hours each sees only as far
-- as its account was the tenant's in them.
CREATE VIEW billing_ownrun WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, j.cluster, j.account, j."user", j.job_id, j.name, j.gpu_model, j.gpus, j.share_num,
       j.share_den, u.started, coalesce(u.ended, u.seen_until) AS finish, u.suspended
FROM billing_ratedjob j JOIN clusters_usagerecord u ON u.id = j.record_id
WHERE j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint);

CREATE VIEW billing_ownhour WITH (security_barrier = true) AS
SELECT o.tenant_id, h.record_id, h.hour, h.busy, h.covered, h.source, h.metric
FROM (
    SELECT tenant_id, account_id,
           range_agg(int8range(extract(epoch FROM since)::bigint, extract(epoch FROM until)::bigint)) AS owned
    FROM tenants_ownership WHERE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint) GROUP BY tenant_id, account_id
) o
JOIN clusters_usagerecord u ON u.account_id = o.account_id
JOIN clusters_utilisationhour h ON h.record_id = u.id
WHERE o.owned && int8range(h.hour, h.hour + 3600);

GRANT SELECT ON billing_ownrun, billing_ownhour TO clustertab_portal;

-- Who pays for whom: names alone of the other side, since the table of tenants shows each its own row.
CREATE VIEW billing_paying WITH (security_barrier) AS
SELECT y.tenant_id, y.payer_id, y.since, y.until, t.name AS tenant, t.slug AS tenant_slug, p.name AS payer
FROM billing_payer y JOIN tenants_tenant t ON t.id = y.tenant_id JOIN tenants_tenant p ON p.id = y.payer_id
WHERE y.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint) OR y.payer_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint);
GRANT SELECT ON billing_paying TO clustertab_portal;
