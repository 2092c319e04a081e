-- name: TOTALS
-- The totals of periods, each with its price, and of a declared meter how it is called.
SELECT t.period_id, t.project_id, p.name, t.gpu_model, t.resource, t.verdict, t.price_id, t.share_den, t.units,
       coalesce(m.title, ''), coalesce(m.unit, ''), g.meter,
       g.unit_price, g.currency, g.by_total, g.title, g.unit
FROM billing_periodtotal t JOIN tenants_project p ON p.id = t.project_id
LEFT JOIN billing_pricetag g ON g.price_id = t.price_id LEFT JOIN billing_ownmeter m ON m.name = t.resource
WHERE t.tenant_id = %(tenant)s AND t.period_id = ANY (%(periods)s) AND t.units <> 0;

-- name: DAYS
-- What was used on each day, apart for each of these projects.
SELECT t.day, CASE WHEN t.project_id = ANY (%(projects)s::bigint[]) THEN t.project_id END AS series, t.share_den,
       sum(t.units) FILTER (WHERE t.resource = 'gpu'), sum(t.units * c.unit_price)
FROM billing_daytotal t LEFT JOIN billing_price c ON c.id = t.price_id
WHERE t.tenant_id = %(tenant)s AND t.day >= %(first_day)s AND t.day < %(end)s
GROUP BY t.day, series, t.share_den ORDER BY t.day, series, t.share_den;

-- name: FIGURES
-- How many jobs started in the period; by unit what the tenant's wallets hold and how many they are; and in other rows what
-- runs now, as RUNNING of `live.sql` has it. One row at least.
SELECT (SELECT coalesce(sum(started), 0)::bigint FROM billing_periodjobs WHERE tenant_id = %(tenant)s AND period_id = %(period)s),
       w.unit, w.balance, w.wallets, w.share_num, w.share_den, w.jobs, w.gpus
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT unit, sum(balance)::bigint AS balance, count(*) AS wallets, NULL::int AS share_num, NULL::int AS share_den,
           NULL::bigint AS jobs, NULL::bigint AS gpus
    FROM billing_wallet WHERE tenant_id = %(tenant)s GROUP BY unit
    UNION ALL
    SELECT NULL, NULL, NULL, j.share_num, j.share_den, count(*), coalesce(sum(j.gpus), 0)::bigint
    FROM billing_ratedjob j
    JOIN unnest(%(clusters)s::text[], %(since)s::bigint[]) AS m (cluster, since) ON m.cluster = j.cluster
    WHERE j.tenant_id = %(tenant)s AND j.ended IS NULL AND j.started IS NOT NULL AND j.seen_until >= m.since
      AND j.record_id <> ALL (ARRAY(SELECT v.record_id FROM billing_vanishedjob v WHERE v.tenant_id = %(tenant)s))
    GROUP BY j.share_num, j.share_den
) w ON true
ORDER BY w.unit;
