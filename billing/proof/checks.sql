-- The sums of `prove`, from the rows themselves, never from what they are to prove.

-- name: SUMS
-- Over the records of `usage_input`: (cluster, resource, part, numerator, denominator) in resource-seconds. What the
-- owner's plan does not charge is waived without a rated row, but for GPUs. What wallets pay is billed once it is booked there.
WITH bounds AS (
    SELECT coalesce(extract(epoch FROM %(month)s::date::timestamp AT TIME ZONE 'UTC')::bigint, 0) AS lo,
           coalesce(extract(epoch FROM (%(month)s::date + interval '1 month') AT TIME ZONE 'UTC')::bigint,
                    9223372036854775807) AS hi
), run AS (
    SELECT u.*, b.lo, b.hi FROM usage_input u CROSS JOIN bounds b
    WHERE u.started < b.hi AND u.finish > b.lo
), owned AS (
    SELECT u.*, o.tenant_id, greatest(coalesce(extract(epoch FROM o.since)::bigint, 0), u.lo) AS since,
           least(coalesce(extract(epoch FROM o.until)::bigint, 9223372036854775807), u.hi) AS until
    FROM run u JOIN tenants_ownership o ON o.account_id = u.account_id
), used AS (
    SELECT u.cluster, r.resource, NULL::bigint AS tenant_id, resource_parts(r.resource, u.share_den) AS den,
           resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
               ::numeric * CASE r.resource WHEN 'gpu' THEN u.share_num ELSE 1 END
               * held_seconds(u.lo, u.hi, u.started, u.finish, u.suspended) AS num
    FROM run u JOIN billing_anyresource r
      ON r.meter = u.meter AND resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity) > 0
    UNION ALL
    SELECT u.cluster, r.resource, u.tenant_id, resource_parts(r.resource, u.share_den),
           resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
               ::numeric * CASE r.resource WHEN 'gpu' THEN u.share_num ELSE 1 END
               * held_seconds(u.since, u.until, u.started, u.finish, u.suspended)
    FROM owned u JOIN billing_anyresource r
      ON r.meter = u.meter AND resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity) > 0
    WHERE u.since < u.finish AND u.until > u.started AND u.since < u.until
), total AS (
    SELECT cluster, resource, tenant_id, den, sum(num) AS num FROM used GROUP BY cluster, resource, tenant_id, den
)
SELECT cluster, resource, 'allocated', num, den FROM total WHERE tenant_id IS NULL
UNION ALL
SELECT cluster, resource, 'unassigned', sum(CASE WHEN tenant_id IS NULL THEN num ELSE -num END), den FROM total
GROUP BY cluster, resource, den
UNION ALL
SELECT u.cluster, r.resource, 'waived',
       sum(resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
           ::numeric * held_seconds(greatest(u.since, t.since), least(u.until, t.until), u.started, u.finish, u.suspended)),
       resource_parts(r.resource, u.share_den) AS den
FROM owned u JOIN prove_time t ON t.tenant_id = u.tenant_id
  AND t.since < least(u.until, u.finish) AND t.until > greatest(u.since, u.started)
JOIN billing_anyresource r
  ON r.meter = u.meter AND resource_amount(r.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity) > 0
 AND NOT resource_is_rated(r.resource, r.is_measure, t.charges)
WHERE u.since < u.finish AND u.until > u.started AND u.since < u.until
GROUP BY u.cluster, r.resource, den
UNION ALL
SELECT u.cluster, r.resource,
       CASE WHEN r.verdict <> 'charged' THEN r.verdict
            WHEN r.id <= CASE WHEN w.price_id IS NULL THEN c.through ELSE b.rated_through END THEN 'billed'
            ELSE 'pending' END AS part,
       sum(r.units::numeric * r.share_num), r.share_den
FROM usage_input u JOIN billing_ratedusage r ON r.record_id = u.record_id
LEFT JOIN billing_coveredperiod c ON c.period_id = r.period_id AND c.payer_id = coalesce(r.payer_id, r.tenant_id)
LEFT JOIN billing_walletprice w ON w.price_id = r.price_id
LEFT JOIN billing_walletbooking b ON b.tenant_id = r.tenant_id
WHERE %(month)s::date IS NULL OR r.service_month = %(month)s::date
GROUP BY u.cluster, r.resource, part, r.share_den

-- name: CHARGED_TIME
-- Once, for all slices of records.
INSERT INTO prove_time SELECT tenant_id, since, until, charges FROM billing_chargedtime;
ANALYZE prove_time

-- name: JOBS
-- Over the records of `usage_input`: where what a tenant's ownership held of a job is not what is rated for it, and how
-- many rated rows the records have. Neither a wrong job that another makes up for, nor usage rated for somebody who no
-- longer owns it, shows in the sums of a cluster.
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
    FROM usage_input u JOIN billing_ratedusage r ON r.record_id = u.record_id
)
SELECT format('{job:%s}, {tenant:%s}, %s: %s s held, %s s rated',
              record_id, tenant_id, resource, sum(held), sum(rated))
FROM job GROUP BY record_id, tenant_id, resource HAVING sum(held) <> sum(rated) LIMIT 10

-- name: RATED_ROWS
SELECT count(*) FROM usage_input u JOIN billing_ratedusage r ON r.record_id = u.record_id

-- name: ALL_RATED_ROWS
SELECT count(*) FROM billing_ratedusage

-- name: LINES
-- What lines hold (positive) and what they cover (negative), per line key; sums to nothing where both agree.
SELECT i.tenant_id, l.service_period_id, l.project_id, l.price_id, l.seconds_num, l.seconds_den
FROM billing_invoiceline l JOIN billing_invoice i ON i.id = l.invoice_id
WHERE i.state = 'issued' AND l.kind = 'usage'
UNION ALL
SELECT c.payer_id, r.period_id, r.project_id, r.price_id, -sum(r.units::numeric * r.share_num), r.share_den
FROM billing_ratedusage r
JOIN billing_coveredperiod c
  ON c.period_id = r.period_id AND c.payer_id = coalesce(r.payer_id, r.tenant_id) AND r.id <= c.through
WHERE r.verdict = 'charged' AND r.price_id NOT IN (SELECT price_id FROM billing_walletprice)
GROUP BY c.payer_id, r.period_id, r.project_id, r.price_id, r.share_den

-- name: WALLET_DAYS
SELECT w.id, w.unit, d.day, d.booked, t.share_den, sum(t.units * p.unit_price)
FROM billing_walletday d JOIN billing_wallet w ON w.id = d.wallet_id
JOIN billing_walletscheme s ON s.id = w.scheme_id
JOIN billing_walletbooking b ON b.tenant_id = w.tenant_id AND NOT b.due
JOIN billing_wallettotal t ON t.tenant_id = w.tenant_id AND t.unit = w.unit AND t.day = d.day
    AND (s.scope <> 'project' OR t.project_id = w.project_id) AND (s.scope <> 'user' OR t."user" = w."user")
JOIN billing_price p ON p.id = t.price_id
GROUP BY w.id, w.unit, d.day, d.booked, t.share_den
