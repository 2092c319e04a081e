-- name: HAS_PARTS
SELECT EXISTS (SELECT FROM billing_ratedjob WHERE tenant_id = %(tenant)s AND part_of <> '');

-- name: COSTS
-- Of each job what all of its parts used, by verdict and price: `heads` has the job of each of the `records`.
SELECT u.head, u.verdict, u.share_den, u.units, g.meter, g.unit_price, g.currency, g.by_total, g.title, g.unit
FROM (
    SELECT p.head, r.verdict, r.price_id, r.share_den, sum(r.units::numeric * r.share_num) AS units
    FROM unnest(%(records)s::bigint[], %(heads)s::bigint[]) AS p (record, head)
    CROSS JOIN LATERAL (
        SELECT verdict, price_id, share_den, share_num, units FROM billing_ratedusage
        WHERE tenant_id = %(tenant)s AND record_id = p.record
          AND service_month >= %(first_month)s AND service_month <= %(last_month)s OFFSET 0
    ) r
    GROUP BY p.head, r.verdict, r.price_id, r.share_den
    HAVING sum(r.units::numeric * r.share_num) <> 0
) u
LEFT JOIN billing_pricetag g ON g.price_id = u.price_id;

-- name: TOP
-- The newest parts, and jobs without parts, that stand for the jobs which ran in the period and have cost most in all.
SELECT max(record_id) FROM (
    SELECT r.record_id, r.project_id, r.cluster, r.part_of, r.gpu_units, r.cost_units,
           r.cost_units * coalesce(c.unit_price, 1) AS cost
    FROM billing_ratedjob r LEFT JOIN billing_price c ON c.id = r.cost_price_id
    WHERE r.tenant_id = %(tenant)s AND r.meter = '' AND r.shown_at < %(until)s
      AND r.shown_at >= %(since)s - job_look_back()
      AND job_ran_in(r.started, coalesce(r.ended, r.seen_until, r.started), %(since)s, %(until)s)
) j
GROUP BY project_id, cluster, part_of, CASE WHEN part_of = '' THEN record_id END
ORDER BY sum(cost) DESC, sum(cost_units) DESC, sum(gpu_units) DESC, max(record_id) DESC LIMIT %(most)s;
