-- What an operator sees first, over all tenants.

-- name: WAITING
SELECT (SELECT count(*) FROM clusters_quarantined WHERE resolved_at IS NULL),
       (SELECT count(*) FROM billing_transfer WHERE state = ANY (%(transfers)s)),
       (SELECT count(*) FROM billing_paymentdispute WHERE state = ANY (%(disputes)s)),
       (SELECT count(*) FROM billing_pendingapproval a JOIN billing_billingperiod p ON p.id = a.period_id
        WHERE a.state = %(approval)s AND p.closed_at IS NULL),
       (SELECT count(*) FROM billing_difference WHERE resolved_at IS NULL),
       (SELECT count(*) FROM billing_paymentattempt WHERE state = 'needs_review'),
       (SELECT count(*) FROM billing_signup WHERE state = 'approval'),
       (SELECT count(*) FROM billing_departure WHERE withdrawn_at IS NULL AND ended_at IS NULL),
       (SELECT count(*) FROM billing_sealedmonth WHERE damages <> '{}')

-- name: REVENUE
-- (currency, share_den, this month, the same days of the one before, all of that): Σ units × unit price. Each tenant's days
-- by its own index.
SELECT g.currency, d.share_den,
       sum(d.units * g.unit_price) FILTER (WHERE d.day >= %(first_day)s),
       sum(d.units * g.unit_price) FILTER (WHERE d.day < %(same_end)s),
       sum(d.units * g.unit_price) FILTER (WHERE d.day < %(first_day)s)
FROM tenants_tenant t
CROSS JOIN LATERAL (
    SELECT price_id, share_den, day, sum(units) AS units FROM billing_daytotal
    WHERE tenant_id = t.id AND day >= %(earlier)s AND day < %(end)s AND price_id IS NOT NULL
    GROUP BY price_id, share_den, day OFFSET 0
) d
JOIN billing_pricetag g ON g.price_id = d.price_id
GROUP BY 1, 2

-- name: CHARGED
-- (cluster, model, share_den, GPU units, currency, Σ units × unit price) of days. Sums of a declared meter are of no model.
SELECT s.cluster, CASE WHEN coalesce(g.unit, '') <> '' THEN '' ELSE s.gpu_model END, s.share_den,
       coalesce(sum(d.units) FILTER (WHERE s.resource = 'gpu'), 0), g.currency, sum(d.units * g.unit_price)
FROM tenants_tenant t
CROSS JOIN LATERAL (
    SELECT series_id, sum(units) AS units FROM billing_dailyusage
    WHERE tenant_id = t.id AND day >= %(first_day)s AND day < %(end)s GROUP BY series_id OFFSET 0
) d
JOIN billing_usageseries s ON s.id = d.series_id
LEFT JOIN billing_pricetag g ON g.price_id = s.price_id
WHERE d.units <> 0
GROUP BY 1, 2, 3, g.currency
