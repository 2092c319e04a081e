-- What all tenants spend, and what their jobs cost, for monitoring.

-- name: SPENDING
SELECT t.slug, x.project_id, x.price_id, x.share_den, sum(x.units)
FROM billing_billingperiod b
JOIN billing_periodtotal x ON x.tenant_id = b.tenant_id AND x.period_id = b.id
JOIN tenants_tenant t ON t.id = b.tenant_id
WHERE b.start <= %(moment)s AND b."end" > %(moment)s AND x.price_id IS NOT NULL AND x.units <> 0
GROUP BY t.slug, x.project_id, x.price_id, x.share_den;

-- name: JOB_COSTS
-- Places are taken in the currency of the tenant's plan: a number of yen says nothing beside one of dollars.
WITH recent AS MATERIALIZED (
    SELECT tenant_id, record_id, left(name, %(name_length)s) AS name, account, cost_units, cost_price_id,
           CASE WHEN gpus = 0 THEN 'none' WHEN gpu_model = '' THEN 'unknown' ELSE gpu_model END AS gpu_type,
           date_trunc('month', to_timestamp(started) AT TIME ZONE 'UTC')::date AS first_month,
           date_trunc('month', to_timestamp(coalesce(ended, seen_until)) AT TIME ZONE 'UTC')::date AS last_month
    FROM billing_ratedjob WHERE ended IS NULL AND started IS NOT NULL AND seen_until >= %(since)s
    UNION ALL
    SELECT tenant_id, record_id, left(name, %(name_length)s) AS name, account, cost_units, cost_price_id,
           CASE WHEN gpus = 0 THEN 'none' WHEN gpu_model = '' THEN 'unknown' ELSE gpu_model END AS gpu_type,
           date_trunc('month', to_timestamp(started) AT TIME ZONE 'UTC')::date AS first_month,
           date_trunc('month', to_timestamp(coalesce(ended, seen_until)) AT TIME ZONE 'UTC')::date AS last_month
    FROM billing_ratedjob WHERE ended >= %(since)s AND started IS NOT NULL AND meter = ''
), kind AS MATERIALIZED (
    SELECT r.tenant_id, r.name, r.account, r.gpu_type, row_number() OVER (
        PARTITION BY l.currency
        ORDER BY sum(r.cost_units * coalesce(c.unit_price, 1)) DESC, r.tenant_id, r.name, r.account, r.gpu_type) <= %(most)s AS told
    FROM recent r
    LEFT JOIN billing_price c ON c.id = r.cost_price_id
    LEFT JOIN billing_subscription s ON s.tenant_id = r.tenant_id AND s.since <= %(moment)s
                                    AND (s.until IS NULL OR s.until > %(moment)s)
    LEFT JOIN billing_plan l ON l.id = s.plan_id
    GROUP BY r.tenant_id, r.name, r.account, r.gpu_type, l.currency
), rated AS (
    SELECT CASE WHEN k.told THEN r.tenant_id END AS tenant_id, CASE WHEN k.told THEN r.name END AS name,
           CASE WHEN k.told THEN r.account END AS account, CASE WHEN k.told THEN r.gpu_type END AS gpu_type,
           u.price_id, u.share_den, sum(u.units::numeric * u.share_num) AS units
    FROM recent r JOIN kind k USING (tenant_id, name, account, gpu_type)
    JOIN billing_ratedusage u ON u.record_id = r.record_id AND u.tenant_id = r.tenant_id
                             AND u.service_month >= r.first_month AND u.service_month <= r.last_month
    WHERE u.price_id IS NOT NULL
    GROUP BY 1, 2, 3, 4, u.price_id, u.share_den
)
SELECT t.slug, d.name, d.account, d.gpu_type, d.price_id, d.share_den, d.units
FROM rated d LEFT JOIN tenants_tenant t ON t.id = d.tenant_id
WHERE d.units <> 0;
