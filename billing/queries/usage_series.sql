-- Usage over time, from what each day used.

-- name: BUCKETS
-- By day or month of the tenant's zone, by what is grouped by (the rest is null), and by price. One row more than `most` says
-- that there are too many.
SELECT CASE WHEN %(by_month)s THEN date_trunc('month', d.day)::date ELSE d.day END AS bucket,
       CASE WHEN 'project' = ANY (%(grouping)s::text[]) THEN p.name END AS project,
       CASE WHEN 'user' = ANY (%(grouping)s::text[]) THEN s."user" END AS "user",
       CASE WHEN 'account' = ANY (%(grouping)s::text[]) THEN s.account END AS account,
       CASE WHEN 'cluster' = ANY (%(grouping)s::text[]) THEN s.cluster END AS cluster,
       CASE WHEN 'gpu_model' = ANY (%(grouping)s::text[]) THEN s.gpu_model END AS gpu_model,
       CASE WHEN 'queue' = ANY (%(grouping)s::text[]) THEN s.queue END AS queue,
       CASE WHEN 'qos' = ANY (%(grouping)s::text[]) THEN s.qos END AS qos,
       CASE WHEN 'state' = ANY (%(grouping)s::text[]) THEN s.state END AS state,
       s.resource, s.share_den, sum(d.units), g.meter, g.unit_price, g.currency, g.by_total
FROM billing_dailyusage d
JOIN billing_usageseries s ON s.tenant_id = d.tenant_id AND s.id = d.series_id
JOIN tenants_project p ON p.id = s.project_id
LEFT JOIN billing_pricetag g ON g.price_id = s.price_id
WHERE d.tenant_id = %(tenant)s AND d.day >= %(first_day)s AND d.day < %(end)s
  AND (%(project)s::bigint IS NULL OR s.project_id = %(project)s::bigint)
  AND (%(projects)s::text[] IS NULL OR p.name = ANY (%(projects)s::text[]))
  AND (%(users)s::text[] IS NULL OR s."user" = ANY (%(users)s::text[]))
  AND (%(accounts)s::text[] IS NULL OR s.account = ANY (%(accounts)s::text[]))
  AND (%(clusters)s::text[] IS NULL OR s.cluster = ANY (%(clusters)s::text[]))
  AND (%(gpu_models)s::text[] IS NULL OR s.gpu_model = ANY (%(gpu_models)s::text[]))
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, s.resource, s.share_den, g.meter, g.unit_price, g.currency, g.by_total
HAVING sum(d.units) <> 0
ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16
LIMIT %(most)s + 1;
