-- What reports of GPU efficiency add up: per run, price and stretch what was held in [begin_at, end_at), epoch seconds.
-- Rows that were taken back again leave nothing. Only GPUs, and whatever else is charged. Units are a whole number of
-- them for each held second: what the period cuts holds its part of those.

-- For operators: the use of a cluster, everybody's or one tenant's; without a tenant also what nobody owned.
CREATE FUNCTION report_pieces(of_cluster bigint, of_tenant bigint, begin_at bigint, end_at bigint) RETURNS TABLE (
    record_id bigint, tenant_id bigint, project_id bigint, gpu boolean, verdict text, price_id bigint, since bigint,
    until bigint, share_num int, share_den int, cluster text, account text, "user" text, gpu_model text, gpus int,
    started bigint, finish bigint, suspended bigint, state text, held numeric, currency text, unit_price numeric
) LANGUAGE sql STABLE AS $$
    WITH rated AS MATERIALIZED (
        SELECT r.record_id, r.tenant_id, r.project_id, r.resource, r.verdict, r.price_id, r.service_from, r.service_to,
               r.share_num, r.share_den, sum(r.units) AS units
        FROM billing_ratedusage r
        WHERE r.service_month >= utc_month(begin_at) AND r.service_month <= utc_month(end_at - 1)
          AND r.service_from < end_at AND r.service_to > begin_at AND (r.resource = 'gpu' OR r.verdict = 'charged')
          AND r.tenant_id = coalesce(of_tenant, r.tenant_id)
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 HAVING sum(r.units) <> 0
    )
    SELECT p.*, l.currency::text, c.unit_price FROM (
        SELECT r.record_id, r.tenant_id, r.project_id, r.resource = 'gpu' AS gpu, r.verdict, r.price_id,
               greatest(r.service_from, begin_at) AS since, least(r.service_to, end_at) AS until, r.share_num,
               r.share_den, u.cluster::text, u.account, u."user", u.gpu_model, u.gpus, u.started, u.finish, u.suspended,
               u.state,
               CASE WHEN r.service_from >= begin_at AND r.service_to <= end_at THEN r.units
                    ELSE coalesce(div(
                        r.units * held_seconds(greatest(r.service_from, begin_at), least(r.service_to, end_at),
                                               u.started, u.finish, u.suspended),
                        nullif(held_seconds(r.service_from, r.service_to, u.started, u.finish, u.suspended), 0)), 0)
                    END AS held
        FROM rated r JOIN clusters_run u ON u.record_id = r.record_id AND u.cluster_id = of_cluster
        UNION ALL
        SELECT u.record_id, NULL, NULL, true, 'unassigned', NULL, lower(gap), upper(gap), u.share_num, u.share_den,
               u.cluster, u.account, u."user", u.gpu_model, u.gpus, u.started, u.finish, u.suspended,
               u.state, u.gpus::numeric * held_seconds(lower(gap), upper(gap), u.started, u.finish, u.suspended)
        FROM clusters_run u LEFT JOIN (
            SELECT account_id, range_agg(int8range(extract(epoch FROM o.since)::bigint,
                                                   extract(epoch FROM o.until)::bigint)) AS owned
            FROM tenants_ownership o GROUP BY account_id
        ) c ON c.account_id = u.account_id
        CROSS JOIN LATERAL unnest(int8multirange(int8range(greatest(u.started, begin_at), least(u.finish, end_at)))
                                  - coalesce(c.owned, '{}')) AS gap
        WHERE u.cluster_id = of_cluster AND u.gpus > 0 AND u.started < end_at AND u.finish > begin_at
          AND (c.owned IS NULL
               OR NOT c.owned @> int8range(greatest(u.started, begin_at), least(u.finish, end_at)))
          AND of_tenant IS NULL
    ) p LEFT JOIN billing_price c ON c.id = p.price_id LEFT JOIN billing_planversion v ON v.id = c.version_id
    LEFT JOIN billing_plan l ON l.id = v.plan_id
    WHERE p.held > 0
$$;

-- Inside a tenant's scope: its own sight of all clusters. A job says of its run what is needed here, and is the same in the
-- transaction that stores the run; row level security shows the tenant its own. Each is looked up by itself: a join whose
-- size is misjudged would read the jobs of all tenants.
CREATE FUNCTION report_own_pieces(of_tenant bigint, begin_at bigint, end_at bigint) RETURNS TABLE (
    record_id bigint, tenant_id bigint, project_id bigint, gpu boolean, verdict text, price_id bigint, since bigint,
    until bigint, share_num int, share_den int, cluster text, account text, "user" text, gpu_model text, gpus int,
    started bigint, finish bigint, suspended bigint, state text, held numeric, currency text, unit_price numeric
) LANGUAGE sql STABLE AS $$
    WITH rated AS MATERIALIZED (
        SELECT r.record_id, r.tenant_id, r.project_id, r.resource, r.verdict, r.price_id, r.service_from, r.service_to,
               r.share_num, r.share_den, sum(r.units) AS units
        FROM billing_ratedusage r
        WHERE r.service_month >= utc_month(begin_at) AND r.service_month <= utc_month(end_at - 1)
          AND r.service_from < end_at AND r.service_to > begin_at AND (r.resource = 'gpu' OR r.verdict = 'charged')
          AND r.tenant_id = of_tenant
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 HAVING sum(r.units) <> 0
    )
    SELECT p.*, l.currency::text, c.unit_price FROM (
        SELECT r.record_id, r.tenant_id, r.project_id, r.resource = 'gpu' AS gpu, r.verdict, r.price_id,
               greatest(r.service_from, begin_at) AS since, least(r.service_to, end_at) AS until, r.share_num,
               r.share_den, u.cluster, u.account, u."user", u.gpu_model, u.gpus, u.started, u.finish, u.suspended,
               u.state,
               CASE WHEN r.service_from >= begin_at AND r.service_to <= end_at THEN r.units
                    ELSE coalesce(div(
                        r.units * held_seconds(greatest(r.service_from, begin_at), least(r.service_to, end_at),
                                               u.started, u.finish, u.suspended),
                        nullif(held_seconds(r.service_from, r.service_to, u.started, u.finish, u.suspended), 0)), 0)
                    END AS held
        FROM rated r
        CROSS JOIN LATERAL (
            SELECT v.*, coalesce(v.ended, v.seen_until) AS finish FROM billing_ratedjob v
            WHERE v.record_id = r.record_id AND v.tenant_id = r.tenant_id OFFSET 0
        ) u
    ) p LEFT JOIN billing_price c ON c.id = p.price_id LEFT JOIN billing_planversion v ON v.id = c.version_id
    LEFT JOIN billing_plan l ON l.id = v.plan_id
    WHERE p.held > 0
$$;

-- The group that a stretch of a run is in, as text: its key and, of projects, namespaces and pods, its subkey. `pod` is the
-- run, where it is a row of its own.
CREATE FUNCTION report_key(kind text, tenant_id bigint, cluster text, gpu_model text, "user" text, pod bigint)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE kind WHEN 'tenant' THEN tenant_id::text WHEN 'project' THEN tenant_id::text WHEN 'namespace' THEN cluster
                         WHEN 'model' THEN gpu_model WHEN 'user' THEN "user"
                         WHEN 'pod' THEN CASE WHEN pod IS NOT NULL THEN tenant_id::text END END
$$;
CREATE FUNCTION report_subkey(kind text, project_id bigint, account text, pod bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE kind WHEN 'project' THEN project_id::text WHEN 'namespace' THEN account WHEN 'pod' THEN pod::text END
$$;

-- What a series of usage is called in a grouping, by the name that addresses and the REST API give it; "" without one. What
-- is a sum of a declared meter has dimensions where GPUs have a model.
CREATE FUNCTION usage_label(kind text, project text, series billing_usageseries, is_sum boolean) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE kind
        WHEN 'project' THEN project
        WHEN 'user' THEN series."user"
        WHEN 'account' THEN series.account
        WHEN 'cluster' THEN series.cluster
        WHEN 'gpu_model' THEN CASE WHEN is_sum THEN '' ELSE series.gpu_model END
        WHEN 'queue' THEN series.queue
        WHEN 'qos' THEN series.qos
        WHEN 'state' THEN series.state
        WHEN 'meter' THEN series.resource
        ELSE ''
    END
$$;
