-- What was measured of a job of the tenant's beside what it held: energy in joules, where its cluster counts it, null where
-- it is unknown; and of a pod what it used beyond its requests, in the smallest quantity of each meter, `parts` of which are
-- a unit. The sums have keys made of the run's: one of the whole run, or one of each hour (clusters.energy,
-- clusters.connectors.prometheus.pod_use). Hours that another tenant owned are not among them.
--
-- A function, and its statements planned anew with the run's own months: a view plans over the tables of all months.
CREATE OR REPLACE FUNCTION billing_own_measured(of_record bigint)
RETURNS TABLE (kind text, title text, unit text, parts bigint, quantity numeric)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    run record;
    first bigint;
    beyond bigint;
BEGIN
    SELECT j.tenant_id, u.cluster_id, u.source_key, u.started, coalesce(u.ended, u.seen_until) AS finish,
           coalesce(u.submitted, u.started) AS submitted, c.kind, c.energy_meter_id INTO run
    FROM billing_ratedjob j JOIN clusters_usagerecord u ON u.id = j.record_id
    JOIN clusters_cluster c ON c.id = u.cluster_id
    WHERE j.record_id = of_record AND j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
      AND ((SELECT nullif(current_setting('app.users', true), '')) IS NULL OR j."user" = ANY ((SELECT own_users())::text[]))
      AND u.meter = '' AND u.started IS NOT NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    first := month_number(least(run.submitted, run.started))::bigint << 40;
    beyond := (month_number(run.finish) + 1)::bigint << 40;
    RETURN QUERY
    SELECT 'energy', m.title::text, m.unit::text, 1::bigint, (
        SELECT sum(s.quantity) FROM (
            SELECT 'energy:' || run.source_key AS key
            UNION ALL
            SELECT 'energy:' || run.source_key || '/'
                || to_char(to_timestamp(hour) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24"Z"')
            FROM generate_series(run.started / 3600 * 3600, run.finish, 3600) AS hour
            WHERE run.kind = 'prometheus'
        ) k
        JOIN clusters_usagerecord e ON e.cluster_id = run.cluster_id AND e.source_key = k.key AND e.meter = run.energy_meter_id
        JOIN billing_ratedjob s ON s.record_id = e.id AND s.tenant_id = run.tenant_id
        WHERE e.id >= first AND e.id < beyond AND s.record_id >= first AND s.record_id < beyond)
    FROM clusters_declaredmeter m WHERE m.name = run.energy_meter_id;
    IF run.kind = 'prometheus' THEN
        RETURN QUERY
        SELECT 'use', m.title::text, m.unit::text, s.share_den::bigint, sum(s.quantity)
        FROM generate_series(run.started / 3600 * 3600, run.finish, 3600) AS hour
        CROSS JOIN (VALUES ('cpu'), ('memory')) AS k (what)
        JOIN clusters_usagerecord e ON e.cluster_id = run.cluster_id
            AND e.source_key = 'use/' || k.what || '/' || split_part(run.source_key, '/', 1) || '/'
                || to_char(to_timestamp(hour) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24"Z"')
        JOIN billing_ratedjob s ON s.record_id = e.id AND s.tenant_id = run.tenant_id
        JOIN clusters_declaredmeter m ON m.name = e.meter
        WHERE e.id >= first AND e.id < beyond AND s.record_id >= first AND s.record_id < beyond
        GROUP BY m.title, m.unit, s.share_den ORDER BY m.title;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION billing_own_measured(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_own_measured(bigint) TO clustertab_portal, clustertab_operator;
