-- What the records of one UTC month add to the proof, from the rows themselves, never from what they are to prove.

-- name: CHARGED_TIME
-- Once, for all slices of records.
INSERT INTO prove_time SELECT tenant_id, since, until, charges FROM billing_chargedtime;
ANALYZE prove_time

-- name: COVERED
-- Up to which rated row documents cover each period of a payer, and what wallets have booked of a tenant.
INSERT INTO prove_covered SELECT period_id, payer_id, through FROM billing_coveredperiod;
INSERT INTO prove_wallet SELECT price_id FROM billing_walletprice;
ANALYZE prove_covered, prove_wallet

-- name: HELD
-- Over the records of `usage_input`, by month of service: (month, cluster number, resource, part, numerator, denominator)
-- in resource-seconds. What the owner's plan does not charge is waived without a rated row, but for GPUs.
WITH month AS (
    SELECT m::date AS month, extract(epoch FROM m AT TIME ZONE 'UTC')::bigint AS lo,
           extract(epoch FROM (m + interval '1 month') AT TIME ZONE 'UTC')::bigint AS hi
    FROM generate_series((SELECT utc_month(min(started)) FROM usage_input)::timestamp,
                         (SELECT utc_month(max(finish)) FROM usage_input)::timestamp, interval '1 month') AS m
), run AS (
    SELECT u.*, b.month, b.lo, b.hi FROM usage_input u JOIN month b ON u.started < b.hi AND u.finish > b.lo
), owned AS (
    SELECT u.*, o.tenant_id, greatest(coalesce(extract(epoch FROM o.since)::bigint, 0), u.lo) AS since,
           least(coalesce(extract(epoch FROM o.until)::bigint, 9223372036854775807), u.hi) AS until
    FROM run u JOIN tenants_ownership o ON o.account_id = u.account_id
), used AS (
    SELECT u.month, u.cluster_id, r.resource, NULL::bigint AS tenant_id, resource_parts(r.resource, u.share_den) AS den,
           resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
               ::numeric * CASE r.resource WHEN 'gpu' THEN u.share_num ELSE 1 END
               * held_seconds(u.lo, u.hi, u.started, u.finish, u.suspended) AS num
    FROM run u JOIN billing_anyresource r
      ON r.meter = u.meter AND resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity) > 0
    UNION ALL
    SELECT u.month, u.cluster_id, r.resource, u.tenant_id, resource_parts(r.resource, u.share_den),
           resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
               ::numeric * CASE r.resource WHEN 'gpu' THEN u.share_num ELSE 1 END
               * held_seconds(u.since, u.until, u.started, u.finish, u.suspended)
    FROM owned u JOIN billing_anyresource r
      ON r.meter = u.meter AND resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity) > 0
    WHERE u.since < u.finish AND u.until > u.started AND u.since < u.until
), total AS (
    SELECT month, cluster_id, resource, tenant_id, den, sum(num) AS num FROM used
    GROUP BY month, cluster_id, resource, tenant_id, den
)
SELECT month, cluster_id, resource, 'allocated', num, den FROM total WHERE tenant_id IS NULL
UNION ALL
SELECT month, cluster_id, resource, 'unassigned', sum(CASE WHEN tenant_id IS NULL THEN num ELSE -num END), den FROM total
GROUP BY month, cluster_id, resource, den
UNION ALL
SELECT u.month, u.cluster_id, r.resource, 'waived',
       sum(resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
           ::numeric * held_seconds(greatest(u.since, t.since), least(u.until, t.until), u.started, u.finish, u.suspended)),
       resource_parts(r.resource, u.share_den) AS den
FROM owned u JOIN prove_time t ON t.tenant_id = u.tenant_id
  AND t.since < least(u.until, u.finish) AND t.until > greatest(u.since, u.started)
JOIN billing_anyresource r
  ON r.meter = u.meter AND resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity) > 0
 AND NOT resource_is_rated(r.resource, r.is_measure, t.charges)
WHERE u.since < u.finish AND u.until > u.started AND u.since < u.until
GROUP BY u.month, u.cluster_id, r.resource, den

-- name: REACH
SELECT min(started), max(finish), array_agg(DISTINCT account_id) FROM usage_input

-- name: RATED
-- What is rated of the records of `usage_input`, in partial sums: rows that documents or wallets cover now are apart.
-- Their numbers are told, too: else each record would be looked for in the tables of all months.
INSERT INTO prove_sum
SELECT %(month)s, r.service_month, u.cluster_id, r.tenant_id, r.period_id, r.project_id, r.price_id, r.payer_id, r.resource,
       r.verdict, r.share_den, sum(r.units::numeric * r.share_num), min(r.id), max(r.id), count(*),
       r.id <= c.through, r.id <= b.rated_through
FROM usage_input u JOIN billing_ratedusage r
  ON r.record_id = u.record_id AND r.record_id > %(after)s AND r.record_id <= %(last)s
LEFT JOIN prove_covered c ON c.period_id = r.period_id AND c.payer_id = coalesce(r.payer_id, r.tenant_id)
LEFT JOIN billing_walletbooking b ON b.tenant_id = r.tenant_id
GROUP BY r.service_month, u.cluster_id, r.tenant_id, r.period_id, r.project_id, r.price_id, r.payer_id, r.resource,
         r.verdict, r.share_den, r.id <= c.through, r.id <= b.rated_through

-- name: UNKNOWN_RATED
-- How many rated rows belong to no record of the month that is known: their records are looked for only where the numbers
-- of rows differ.
SELECT (SELECT count(*) FROM billing_ratedusage WHERE record_id > %(after)s AND record_id <= %(last)s)
       - coalesce((SELECT sum(rows) FROM prove_sum WHERE month = %(month)s), 0)

-- name: RATED_OF_NOBODY
INSERT INTO prove_sum
SELECT %(month)s, r.service_month, NULL, r.tenant_id, r.period_id, r.project_id, r.price_id, r.payer_id, r.resource,
       r.verdict, r.share_den, sum(r.units::numeric * r.share_num), min(r.id), max(r.id), count(*),
       r.id <= c.through, r.id <= b.rated_through
FROM billing_ratedusage r
LEFT JOIN prove_covered c ON c.period_id = r.period_id AND c.payer_id = coalesce(r.payer_id, r.tenant_id)
LEFT JOIN billing_walletbooking b ON b.tenant_id = r.tenant_id
WHERE r.record_id > %(after)s AND r.record_id <= %(last)s
  AND NOT EXISTS (SELECT FROM clusters_run u WHERE u.record_id = r.record_id)
GROUP BY r.service_month, r.tenant_id, r.period_id, r.project_id, r.price_id, r.payer_id, r.resource,
         r.verdict, r.share_den, r.id <= c.through, r.id <= b.rated_through

-- name: JOBS
-- Over the records of `usage_input`: where what a tenant's ownership held of a job is not what is rated for it. Neither a
-- wrong job that another makes up for, nor usage rated for somebody who no longer owns it, shows in the sums of a cluster.
WITH owned AS (
    SELECT u.*, o.tenant_id, coalesce(extract(epoch FROM o.since)::bigint, 0) AS since,
           coalesce(extract(epoch FROM o.until)::bigint, 9223372036854775807) AS until
    FROM usage_input u JOIN tenants_ownership o ON o.account_id = u.account_id WHERE u.started IS NOT NULL
), job AS (
    SELECT u.record_id, u.tenant_id, r.resource,
           resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
               ::numeric * held_seconds(greatest(u.since, t.since), least(u.until, t.until), u.started, u.finish, u.suspended)
               AS held, 0::numeric AS rated
    FROM owned u JOIN prove_time t ON t.tenant_id = u.tenant_id
      AND t.since < least(u.until, u.finish) AND t.until > greatest(u.since, u.started)
    JOIN billing_anyresource r
      ON r.meter = u.meter AND resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity) > 0
     AND resource_is_rated(r.resource, r.is_measure, t.charges)
    WHERE u.since < u.finish AND u.until > u.started
    UNION ALL
    SELECT r.record_id, r.tenant_id, r.resource, 0, r.units
    FROM usage_input u JOIN billing_ratedusage r
      ON r.record_id = u.record_id AND r.record_id > %(after)s AND r.record_id <= %(last)s
)
SELECT format('{job:%%s}, {tenant:%%s}, %%s: %%s s held, %%s s rated',
              record_id, tenant_id, resource, sum(held), sum(rated))
FROM job GROUP BY record_id, tenant_id, resource HAVING sum(held) <> sum(rated) LIMIT 10

-- name: SUMS
-- What is rated of the records of a month, or of all: (service month, cluster number, resource, part, numerator,
-- denominator). What wallets pay is billed once it is booked there.
SELECT service_month, cluster_id, resource,
       CASE WHEN verdict <> 'charged' THEN verdict
            WHEN s.newest <= CASE WHEN w.price_id IS NULL THEN c.through ELSE b.rated_through END THEN 'billed'
            ELSE 'pending' END AS part,
       sum(units), share_den
FROM prove_sum s
LEFT JOIN prove_covered c ON c.period_id = s.period_id AND c.payer_id = coalesce(s.payer_id, s.tenant_id)
LEFT JOIN prove_wallet w ON w.price_id = s.price_id
LEFT JOIN billing_walletbooking b ON b.tenant_id = s.tenant_id
WHERE cluster_id IS NOT NULL AND (%(month)s::date IS NULL OR s.month = %(month)s::date)
GROUP BY service_month, cluster_id, resource, part, share_den

-- name: JOBS_OF_NOBODY
-- Jobs of the month whose tenant or project there is not.
SELECT format('{job:%%s}, {tenant:%%s}, {project:%%s}', j.record_id, j.tenant_id, j.project_id)
FROM billing_ratedjob j LEFT JOIN tenants_project p ON p.id = j.project_id AND p.tenant_id = j.tenant_id
WHERE p.id IS NULL AND j.record_id > %(after)s AND j.record_id <= %(last)s LIMIT 10
