-- Usage over time, from what each day used.

-- name: BUCKETS
-- By day or month of the tenant's zone, by what is grouped by (the rest is null), and by price. One row more than `most`
-- says that there are too many. `of_totals`: from the totals of days, of which there are far fewer, and which know neither
-- users, accounts, clusters, queues, QOS nor states. Days are summed by the numbers of their series, of which a year has
-- a thirtieth, before anything is joined to them.
SELECT d.bucket,
       CASE WHEN 'project' = ANY (%(grouping)s::text[]) THEN p.name END AS project,
       CASE WHEN 'user' = ANY (%(grouping)s::text[]) THEN d."user" END AS "user",
       CASE WHEN 'account' = ANY (%(grouping)s::text[]) THEN d.account END AS account,
       CASE WHEN 'cluster' = ANY (%(grouping)s::text[]) THEN d.cluster END AS cluster,
       CASE WHEN 'gpu_model' = ANY (%(grouping)s::text[]) THEN CASE WHEN k.is_sum THEN '' ELSE d.gpu_model END
           END AS gpu_model,
       CASE WHEN 'queue' = ANY (%(grouping)s::text[]) THEN d.queue END AS queue,
       CASE WHEN 'qos' = ANY (%(grouping)s::text[]) THEN d.qos END AS qos,
       CASE WHEN 'state' = ANY (%(grouping)s::text[]) THEN d.state END AS state,
       CASE WHEN 'meter' = ANY (%(grouping)s::text[]) THEN d.resource END AS meter,
       CASE WHEN 'dimensions' = ANY (%(grouping)s::text[]) THEN CASE WHEN k.is_sum THEN d.gpu_model ELSE '' END
           END AS dimensions,
       d.resource, d.share_den, sum(d.units), g.meter, g.unit_price, g.currency, g.by_total, g.title, g.unit
FROM (
    SELECT u.bucket, s.project_id, s.resource, s.price_id, s.share_den, s."user", s.account, s.cluster, s.gpu_model,
           s.queue, s.qos, s.state, u.units
    FROM (
        SELECT bucket, series_id, sum(units) AS units FROM (
            SELECT CASE WHEN %(by_month)s THEN date_trunc('month', day::timestamp)::date ELSE day END AS bucket, series_id,
                   units
            FROM billing_dailyusage
            WHERE NOT %(of_totals)s AND tenant_id = %(tenant)s AND day >= %(first_day)s AND day < %(end)s
        ) day GROUP BY bucket, series_id
    ) u JOIN billing_usageseries s ON s.tenant_id = %(tenant)s AND s.id = u.series_id
    UNION ALL
    SELECT CASE WHEN %(by_month)s THEN date_trunc('month', t.day::timestamp)::date ELSE t.day END, t.project_id, t.resource,
           t.price_id, t.share_den, '', '', '', t.gpu_model, '', '', '', t.units
    FROM billing_daytotal t
    WHERE %(of_totals)s AND t.tenant_id = %(tenant)s AND t.day >= %(first_day)s AND t.day < %(end)s
) d
JOIN tenants_project p ON p.id = d.project_id
LEFT JOIN billing_pricetag g ON g.price_id = d.price_id
CROSS JOIN LATERAL (SELECT coalesce(g.unit <> '', false) AS is_sum) k
WHERE (%(project)s::bigint IS NULL OR d.project_id = %(project)s::bigint)
  AND (%(projects)s::text[] IS NULL OR p.name = ANY (%(projects)s::text[]))
  AND (%(users)s::text[] IS NULL OR d."user" = ANY (%(users)s::text[]))
  AND (%(accounts)s::text[] IS NULL OR d.account = ANY (%(accounts)s::text[]))
  AND (%(clusters)s::text[] IS NULL OR d.cluster = ANY (%(clusters)s::text[]))
  AND (%(gpu_models)s::text[] IS NULL OR d.gpu_model = ANY (%(gpu_models)s::text[]) AND NOT k.is_sum)
  AND (%(meters)s::text[] IS NULL OR d.resource = ANY (%(meters)s::text[]))
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, d.resource, d.share_den, g.meter, g.unit_price, g.currency, g.by_total,
         g.title, g.unit
HAVING sum(d.units) <> 0
ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18
LIMIT %(most)s + 1;

-- name: HOURS
-- The same by hour of the zone, from the rated rows: days hold no hours. A local hour begins with its day, so that of a
-- day of 23 or 25 hours each is one; the last one of a day that shifts by half an hour is shorter. Rows are cut as days
-- cut them, so that the hours of a day add up to it. `gone`: a job of them is in a month that was detached.
WITH hour AS MATERIALIZED (
    SELECT since, until, utc_hour FROM (
        SELECT begins AS since, least(begins + 3600, day_start(day::date + 1, %(zone)s)) AS until
        FROM generate_series(%(first_day)s::timestamp, %(end)s::timestamp - interval '1 day', interval '1 day') AS day
        CROSS JOIN LATERAL generate_series(day_start(day::date, %(zone)s), day_start(day::date + 1, %(zone)s) - 1, 3600)
          AS begins
    ) h CROSS JOIN LATERAL generate_series(since / 3600, (until - 1) / 3600) AS utc_hour
), reach AS MATERIALIZED (
    SELECT day_start(%(first_day)s::date, %(zone)s) AS since, day_start(%(end)s::date, %(zone)s) AS until
), row AS (
    SELECT record_id, project_id, resource, price_id, service_from, service_to, share_num, share_den, abs(units) AS units,
           sum(sign(units)) AS times
    FROM billing_ratedusage, reach
    WHERE tenant_id = %(tenant)s AND service_month >= utc_month(reach.since - 32 * 86400)
      AND service_month <= utc_month(reach.until - 1) AND service_from < reach.until AND service_to > reach.since
      AND (resource = 'gpu' OR verdict = 'charged') AND units <> 0
      AND (%(project)s::bigint IS NULL OR project_id = %(project)s::bigint)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 HAVING sum(sign(units)) <> 0
)
SELECT h.since AS bucket,
       CASE WHEN 'project' = ANY (%(grouping)s::text[]) THEN p.name END AS project,
       CASE WHEN 'user' = ANY (%(grouping)s::text[]) THEN coalesce(j."user", '') END AS "user",
       CASE WHEN 'account' = ANY (%(grouping)s::text[]) THEN coalesce(j.account, '') END AS account,
       CASE WHEN 'cluster' = ANY (%(grouping)s::text[]) THEN coalesce(j.cluster, '') END AS cluster,
       CASE WHEN 'gpu_model' = ANY (%(grouping)s::text[]) THEN CASE WHEN k.is_sum THEN '' ELSE coalesce(j.gpu_model, '') END
           END AS gpu_model,
       CASE WHEN 'queue' = ANY (%(grouping)s::text[]) THEN coalesce(j.queue, '') END AS queue,
       CASE WHEN 'qos' = ANY (%(grouping)s::text[]) THEN coalesce(j.qos, '') END AS qos,
       CASE WHEN 'state' = ANY (%(grouping)s::text[]) THEN coalesce(j.state, '') END AS state,
       CASE WHEN 'meter' = ANY (%(grouping)s::text[]) THEN r.resource END AS meter,
       CASE WHEN 'dimensions' = ANY (%(grouping)s::text[]) THEN CASE WHEN k.is_sum THEN coalesce(j.gpu_model, '') ELSE '' END
           END AS dimensions,
       r.resource, r.share_den,
       sum(r.times * r.share_num
           * units_within(r.units, r.service_from, r.service_to, greatest(h.since, r.service_from),
                          least(h.until, r.service_to))),
       g.meter, g.unit_price, g.currency, g.by_total, g.title, g.unit, bool_or(j.record_id IS NULL) AS gone
FROM row r CROSS JOIN reach
JOIN tenants_project p ON p.id = r.project_id
LEFT JOIN billing_ratedjob j ON j.record_id = r.record_id AND j.tenant_id = %(tenant)s
LEFT JOIN billing_pricetag g ON g.price_id = r.price_id
CROSS JOIN LATERAL (SELECT coalesce(g.unit <> '', false) AS is_sum) k
CROSS JOIN LATERAL generate_series(greatest(r.service_from, reach.since) / 3600,
                                   (least(r.service_to, reach.until) - 1) / 3600) AS touched
JOIN hour h ON h.utc_hour = touched AND h.since < r.service_to AND h.until > r.service_from
 AND touched = greatest(h.since, r.service_from) / 3600
WHERE (%(projects)s::text[] IS NULL OR p.name = ANY (%(projects)s::text[]))
  AND (%(users)s::text[] IS NULL OR j.record_id IS NULL OR j."user" = ANY (%(users)s::text[]))
  AND (%(accounts)s::text[] IS NULL OR j.record_id IS NULL OR j.account = ANY (%(accounts)s::text[]))
  AND (%(clusters)s::text[] IS NULL OR j.record_id IS NULL OR j.cluster = ANY (%(clusters)s::text[]))
  AND (%(gpu_models)s::text[] IS NULL OR j.record_id IS NULL OR j.gpu_model = ANY (%(gpu_models)s::text[]) AND NOT k.is_sum)
  AND (%(meters)s::text[] IS NULL OR r.resource = ANY (%(meters)s::text[]))
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, r.resource, r.share_den, g.meter, g.unit_price, g.currency, g.by_total,
         g.title, g.unit
HAVING sum(r.times * r.share_num
           * units_within(r.units, r.service_from, r.service_to, greatest(h.since, r.service_from),
                          least(h.until, r.service_to))) <> 0
ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18
LIMIT %(most)s + 1;
