-- What a tenant used in two ranges of days, from what each day used. A day may be in both. Days are summed by the numbers
-- of their series, of which a large tenant has few, before anything is joined.

-- name: EXPLORED
-- By range, first day of a bucket of the later one, group and price. `named`: a group that costs most in both together; all others are
-- one. One row more than `most` says that there are too many.
WITH used AS MATERIALIZED (
    SELECT d.earlier, d.bucket,
           usage_label(%(by1)s, p.name, s, k.is_sum) AS key1,
           usage_label(%(by2)s, p.name, s, k.is_sum) AS key2,
           s.resource, s.share_den, s.price_id, sum(d.units) AS units
    FROM (
        SELECT a.earlier, a.bucket, d.* FROM (
            SELECT false AS earlier, since AS bucket, since, until
            FROM unnest(%(bucket_firsts)s::date[], %(bucket_ends)s::date[]) AS b (since, until)
            UNION ALL SELECT true, NULL, %(earlier_first)s::date, %(earlier_end)s::date
        ) a CROSS JOIN LATERAL (
            SELECT u.series_id, sum(u.units) AS units FROM billing_dailyusage u
            WHERE u.tenant_id = %(tenant)s AND u.day >= a.since AND u.day < a.until GROUP BY 1 OFFSET 0
        ) d
    ) d JOIN billing_usageseries s ON s.tenant_id = %(tenant)s AND s.id = d.series_id
    JOIN tenants_project p ON p.id = s.project_id
    LEFT JOIN billing_pricetag g ON g.price_id = s.price_id
    CROSS JOIN LATERAL (SELECT coalesce(g.unit <> '', false) AS is_sum) k
    WHERE (%(project)s::text IS NULL OR p.name = %(project)s)
      AND (%(user)s::text IS NULL OR s."user" = %(user)s)
      AND (%(account)s::text IS NULL OR s.account = %(account)s)
      AND (%(cluster)s::text IS NULL OR s.cluster = %(cluster)s)
      AND (%(gpu_model)s::text IS NULL OR usage_label('gpu_model', p.name, s, k.is_sum) = %(gpu_model)s)
      AND (%(queue)s::text IS NULL OR s.queue = %(queue)s)
      AND (%(qos)s::text IS NULL OR s.qos = %(qos)s)
      AND (%(state)s::text IS NULL OR %(state)s IN (s.state, lower(s.state)))
      AND (%(meter)s::text IS NULL OR s.resource = %(meter)s)
    GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(d.units) <> 0
), ranked AS (
    SELECT key1, key2, row_number() OVER (
        ORDER BY sum(u.units / u.share_den * coalesce(g.unit_price, 0)) DESC,
                 sum(u.units / u.share_den) FILTER (WHERE u.resource = 'gpu') DESC NULLS LAST, key1, key2) <= coalesce(%(groups)s, 1000000) AS named
    FROM used u LEFT JOIN billing_pricetag g ON g.price_id = u.price_id GROUP BY key1, key2
)
SELECT u.earlier, u.bucket, r.named, CASE WHEN r.named THEN key1 ELSE '' END, CASE WHEN r.named THEN key2 ELSE '' END,
       u.resource, u.share_den, sum(u.units), g.meter, g.unit_price, g.currency, g.by_total, g.title, g.unit
FROM used u JOIN ranked r USING (key1, key2) LEFT JOIN billing_pricetag g ON g.price_id = u.price_id
GROUP BY 1, 2, 3, 4, 5, u.resource, u.share_den, g.meter, g.unit_price, g.currency, g.by_total, g.title, g.unit
LIMIT %(most)s + 1;

-- name: ITEMS
-- What was charged by range, group, and what a price is compared by: the GPU model that was used, or the dimensions of a
-- declared meter, and all else that its price holds for. Policies make prices and projects dear to plan and to look up, so
-- each is read once.
WITH spent AS MATERIALIZED (
    SELECT d.earlier, s, d.units
    FROM (
        SELECT a.earlier, d.series_id, sum(d.units) AS units
        FROM (VALUES (false, %(first_day)s::date, %(end)s::date),
                     (true, %(earlier_first)s::date, %(earlier_end)s::date)) AS a (earlier, since, until)
        JOIN billing_dailyusage d ON d.tenant_id = %(tenant)s AND d.day >= a.since AND d.day < a.until
        GROUP BY 1, 2 OFFSET 0
    ) d JOIN billing_usageseries s ON s.tenant_id = %(tenant)s AND s.id = d.series_id
    WHERE s.price_id IS NOT NULL
      AND (%(user)s::text IS NULL OR s."user" = %(user)s)
      AND (%(account)s::text IS NULL OR s.account = %(account)s)
      AND (%(cluster)s::text IS NULL OR s.cluster = %(cluster)s)
      AND (%(queue)s::text IS NULL OR s.queue = %(queue)s)
      AND (%(qos)s::text IS NULL OR s.qos = %(qos)s)
      AND (%(state)s::text IS NULL OR %(state)s IN (s.state, lower(s.state)))
      AND (%(meter)s::text IS NULL OR s.resource = %(meter)s)
), price AS MATERIALIZED (
    SELECT g.*, g.unit <> '' AS is_sum, c.valid_from,
           jsonb_build_array(c.clusters, c.queues, c.qoses, c.priority_classes, c.mig_profiles, c.states, c.uses, c.dimensions,
                             c.hours)::text AS place
    FROM billing_price c JOIN billing_pricetag g ON g.price_id = c.id WHERE c.id IN (SELECT (s).price_id FROM spent)
), project AS MATERIALIZED (
    SELECT id, name FROM tenants_project WHERE id IN (SELECT (s).project_id FROM spent)
), used AS (
    SELECT u.earlier, usage_label(%(by1)s, p.name, u.s, c.is_sum) AS key1,
           usage_label(%(by2)s, p.name, u.s, c.is_sum) AS key2,
           (u.s).resource, (u.s).gpu_model, (u.s).share_den, (u.s).price_id, sum(u.units) AS units
    FROM spent u JOIN price c ON c.price_id = (u.s).price_id JOIN project p ON p.id = (u.s).project_id
    WHERE (%(project)s::text IS NULL OR p.name = %(project)s)
      AND (%(gpu_model)s::text IS NULL OR usage_label('gpu_model', p.name, u.s, c.is_sum) = %(gpu_model)s)
    GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(u.units) <> 0
)
SELECT u.earlier, u.key1, u.key2, u.resource, u.gpu_model, c.place, u.share_den, sum(u.units), c.valid_from, c.meter,
       c.unit_price, c.currency, c.by_total, c.title, c.unit
FROM used u JOIN price c ON c.price_id = u.price_id
GROUP BY 1, 2, 3, 4, 5, 6, u.share_den, c.valid_from, c.meter, c.unit_price, c.currency, c.by_total, c.title, c.unit
LIMIT %(most)s + 1;

-- name: LINES
-- What documents charge besides use, by range and kind: a line counts on the first day of the period that it is for.
SELECT a.earlier, l.kind, i.currency, sum(l.amount)::bigint
FROM (VALUES (false, %(first_day)s::date, %(end)s::date), (true, %(earlier_first)s::date, %(earlier_end)s::date))
  AS a (earlier, since, until)
JOIN billing_billingperiod b ON b.tenant_id = %(tenant)s AND (b.start AT TIME ZONE b.timezone)::date >= a.since
                            AND (b.start AT TIME ZONE b.timezone)::date < a.until
JOIN billing_invoiceline l ON l.service_period_id = b.id AND l.tenant_id = %(tenant)s AND l.kind <> 'usage'
JOIN billing_invoice i ON i.id = l.invoice_id AND i.state = 'issued'
WHERE NOT (b.id = ANY (%(accrued)s) AND l.kind IN ('fee', 'commitment', 'discount'))
GROUP BY 1, 2, 3 HAVING sum(l.amount) <> 0 ORDER BY 2, 3, 1;

-- name: CHOICES
-- What filters offer: the first values of each kind, by name. Not of everybody: what a member used who sees no more.
SELECT 'account', array(SELECT DISTINCT account FROM billing_usageseries WHERE tenant_id = %(tenant)s ORDER BY 1 LIMIT %(most)s)
UNION ALL
SELECT 'cluster', array(SELECT DISTINCT cluster FROM billing_usageseries WHERE tenant_id = %(tenant)s ORDER BY 1 LIMIT %(most)s)
UNION ALL
SELECT 'gpu_model', array(SELECT DISTINCT gpu_model FROM billing_usageseries WHERE tenant_id = %(tenant)s AND resource = 'gpu'
                          ORDER BY 1 LIMIT %(most)s)
UNION ALL
SELECT 'queue', array(SELECT DISTINCT queue FROM billing_usageseries WHERE tenant_id = %(tenant)s ORDER BY 1 LIMIT %(most)s)
UNION ALL
SELECT 'qos', array(SELECT DISTINCT qos FROM billing_usageseries WHERE tenant_id = %(tenant)s ORDER BY 1 LIMIT %(most)s)
UNION ALL
SELECT 'state', array(SELECT DISTINCT state FROM billing_usageseries WHERE tenant_id = %(tenant)s ORDER BY 1 LIMIT %(most)s)
UNION ALL
SELECT 'project', array(SELECT name FROM tenants_project WHERE tenant_id = %(tenant)s AND (
                            %(everybody)s OR id IN (SELECT project_id FROM billing_usageseries WHERE tenant_id = %(tenant)s)
                        ) ORDER BY 1 LIMIT %(most)s);
