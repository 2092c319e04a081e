-- Identities that must hold: each statement returns one text per place where its name is not true.

-- name: period totals equal rated usage
SELECT format('{period:%s}, {project:%s}, %s %s: %s kept, %s rated', period_id, project_id, resource, verdict,
              sum(kept), sum(rated))
FROM (
    SELECT period_id, project_id, resource, verdict, price_id, share_den, payer_id, units AS kept, 0 AS rated
    FROM billing_periodtotal
    UNION ALL
    SELECT period_id, project_id, resource, verdict, price_id, share_den, payer_id, 0,
           units::numeric * share_num
    FROM billing_ratedusage
) both_sides
GROUP BY period_id, project_id, resource, verdict, price_id, share_den, payer_id HAVING sum(kept) <> sum(rated)

-- name: daily usage equals rated usage
-- By all that it is grouped by, as jobs have it now: a job whose state changed has left no second in the state before.
SELECT format('{tenant:%s}, {project:%s}, %s of %s: %s kept, %s rated', tenant_id, project_id, resource, label,
              sum(kept), sum(rated))
FROM (
    SELECT s.tenant_id, s.project_id, s.resource, s.price_id, s.share_den,
           usage_label(s."user", s.account, s.cluster, s.gpu_model, s.queue, s.qos, s.state) AS label,
           d.units AS kept, 0 AS rated
    FROM billing_dailyusage d JOIN billing_usageseries s ON s.id = d.series_id AND s.tenant_id = d.tenant_id
    UNION ALL
    SELECT r.tenant_id, r.project_id, r.resource, r.price_id, r.share_den,
           usage_label(j."user", j.account, j.cluster, j.gpu_model, j.queue, j.qos, j.state), 0, r.units
    FROM (
        SELECT tenant_id, record_id, project_id, resource, price_id, share_den, sum(units::numeric * share_num) AS units
        FROM billing_ratedusage WHERE resource = 'gpu' OR verdict = 'charged'
        GROUP BY tenant_id, record_id, project_id, resource, price_id, share_den HAVING sum(units * share_num) <> 0
    ) r LEFT JOIN billing_ratedjob j ON j.record_id = r.record_id AND j.tenant_id = r.tenant_id
) both_sides
GROUP BY tenant_id, project_id, resource, price_id, share_den, label HAVING sum(kept) <> sum(rated)

-- name: day totals equal daily usage
SELECT format('{tenant:%s} on %s, {project:%s}, %s: %s kept, %s used', tenant_id, day, project_id, resource, sum(kept),
              sum(used))
FROM (
    SELECT tenant_id, day, project_id, gpu_model, resource, price_id, share_den, units AS kept, 0 AS used
    FROM billing_daytotal
    UNION ALL
    SELECT d.tenant_id, d.day, s.project_id, s.gpu_model, s.resource, s.price_id, s.share_den, 0, d.units
    FROM billing_dailyusage d JOIN billing_usageseries s ON s.id = d.series_id AND s.tenant_id = d.tenant_id
) both_sides
GROUP BY tenant_id, day, project_id, gpu_model, resource, price_id, share_den HAVING sum(kept) <> sum(used)

-- name: corrected prices are looked at again
SELECT format('{period:%s}, {project:%s}, {price:%s}', t.period_id, t.project_id, t.price_id)
FROM billing_periodtotal t JOIN billing_price p ON p.id = t.price_id
WHERE t.last_rated_id < p.corrected_through

-- name: what is kept of the jobs of a period is what they are
-- By the price that they have, 0 for several or none: as many started as are counted; who ran in it and is not kept costs
-- no more than the floor, above which as many are kept as a page shows.
SELECT format('{period:%s}, %s: %s of its jobs started in it, %s counted; of its most expensive %s missing, %s wrong',
              period_id, CASE price_id WHEN 0 THEN 'no price alone' ELSE format('{price:%s}', price_id) END,
              count(*) FILTER (WHERE began), coalesce(max(counted), 0),
              greatest(least(8, count(*) FILTER (WHERE ran)) - count(*) FILTER (WHERE kept AND above),
                       count(*) FILTER (WHERE above AND NOT kept)),
              count(*) FILTER (WHERE kept AND NOT ran))
FROM (
    SELECT coalesce(r.period_id, t.period_id, f.period_id) AS period_id,
           coalesce(r.price_id, t.price_id, f.price_id) AS price_id, r.began, f.started AS counted,
           t.record_id IS NOT NULL AS kept, r.record_id IS NOT NULL AS ran,
           r.record_id IS NOT NULL AND (f.floor_id IS NULL OR (r.cost_units, r.gpu_units, r.record_id)
                                                             > (f.floor_cost, f.floor_units, f.floor_id)) AS above
    FROM (
        SELECT j.tenant_id, b.id AS period_id, coalesce(j.cost_price_id, 0) AS price_id, j.record_id, j.cost_units,
               j.gpu_units, b.start <= to_timestamp(j.started) AS began
        FROM billing_ratedjob j CROSS JOIN LATERAL (
            SELECT * FROM billing_billingperiod p
            WHERE p.tenant_id = j.tenant_id AND p."end" > to_timestamp(j.started)
              AND p.start <= to_timestamp(greatest(coalesce(j.ended, j.seen_until, j.started) - 1, j.started))
              AND p.start <= to_timestamp(j.started + job_look_back()) OFFSET 0
        ) b WHERE j.started IS NOT NULL AND j.meter = ''
    ) r
    FULL JOIN billing_periodtopjob t
      ON (t.tenant_id, t.period_id, t.price_id, t.record_id) = (r.tenant_id, r.period_id, r.price_id, r.record_id)
    FULL JOIN billing_periodjobs f
      ON (f.tenant_id, f.period_id, f.price_id)
       = (coalesce(r.tenant_id, t.tenant_id), coalesce(r.period_id, t.period_id), coalesce(r.price_id, t.price_id))
) job GROUP BY period_id, price_id
HAVING count(*) FILTER (WHERE began) <> coalesce(max(counted), 0) OR bool_or(above AND NOT kept) OR bool_or(kept AND NOT ran)
    OR count(*) FILTER (WHERE kept AND above) < least(8, count(*) FILTER (WHERE ran))

-- name: every job has its tenant and project
SELECT format('{job:%s}, {tenant:%s}, {project:%s}', j.record_id, j.tenant_id, j.project_id)
FROM billing_ratedjob j LEFT JOIN tenants_project p ON p.id = j.project_id AND p.tenant_id = j.tenant_id
WHERE p.id IS NULL

-- name: invoice lines add up to their subtotal
SELECT i.number FROM billing_invoice i LEFT JOIN billing_invoiceline l ON l.invoice_id = i.id
WHERE i.state = 'issued' GROUP BY i.id HAVING i.subtotal <> coalesce(sum(l.amount), 0)

-- name: wallet totals equal rated usage
SELECT format('{tenant:%s}, %s: %s kept, %s rated', tenant_id, unit, sum(kept), sum(rated)) FROM (
    SELECT tenant_id, unit, price_id, share_den, units AS kept, 0 AS rated FROM billing_wallettotal
    UNION ALL
    SELECT r.tenant_id, p.currency, r.price_id, r.share_den, 0, r.units::numeric * r.share_num
    FROM billing_ratedusage r JOIN billing_price c ON c.id = r.price_id
    JOIN billing_planversion v ON v.id = c.version_id JOIN billing_plan p ON p.id = v.plan_id
    WHERE p.settles = 'wallet' AND r.verdict = 'charged'
) both_sides GROUP BY tenant_id, unit, price_id, share_den HAVING sum(kept) <> sum(rated)

-- name: wallet entries add up to zero
SELECT format('booking %s on {wallet:%s}: %s', booking, min(wallet_id), sum(amount)) FROM billing_walletentry
GROUP BY booking HAVING sum(amount) <> 0

-- name: wallets, grants and days stand as their entries
SELECT format('{wallet:%s}: %s kept, %s entered', w.id, w.balance, coalesce(sum(e.amount), 0))
FROM billing_wallet w LEFT JOIN billing_walletentry e ON e.wallet_id = w.id AND e.side = 'balance'
GROUP BY w.id HAVING w.balance <> coalesce(sum(e.amount), 0)
UNION ALL
SELECT format('{grant:%s}: %s kept, %s entered', g.id, g.left, coalesce(sum(e.amount), 0))
FROM billing_walletgrant g LEFT JOIN billing_walletentry e ON e.grant_id = g.id
    AND e.side = 'balance'
GROUP BY g.id HAVING g.left <> coalesce(sum(e.amount), 0)
UNION ALL
SELECT format('{grant:%s}: %s expired, %s entered', g.id, g.expired, coalesce(sum(e.amount), 0))
FROM billing_walletgrant g LEFT JOIN billing_walletentry e ON e.grant_id = g.id AND e.side = 'expired'
GROUP BY g.id HAVING g.expired <> coalesce(sum(e.amount), 0)
UNION ALL
SELECT format('{wallet:%s} on %s: %s kept, %s entered',
              d.wallet_id, d.day, d.booked, coalesce(sum(e.amount), 0))
FROM billing_walletday d
LEFT JOIN billing_walletentry e ON e.wallet_id = d.wallet_id AND e.day = d.day AND e.side = 'used'
GROUP BY d.id HAVING d.booked <> coalesce(sum(e.amount), 0)
UNION ALL
SELECT format('{wallet:%s}: %s held, %s in holds', w.id, w.held, coalesce(sum(h.amount), 0))
FROM billing_wallet w LEFT JOIN billing_wallethold h ON h.wallet_id = w.id AND h.released_at IS NULL
GROUP BY w.id HAVING w.held <> coalesce(sum(h.amount), 0)

-- name: wallets paid on invoices what those say
SELECT format('%s: %s said, %s entered', i.number, i.prepaid, coalesce(sum(e.amount), 0))
FROM billing_invoice i LEFT JOIN billing_walletentry e ON e.invoice_id = i.id AND e.side = 'invoice'
GROUP BY i.id
HAVING coalesce(sum(e.amount), 0) <> CASE WHEN i.state = 'issued' THEN i.prepaid ELSE 0 END
UNION ALL
SELECT format('%s: its credit notes gave back more than its wallet paid', o.number)
FROM billing_invoice o JOIN billing_invoice n ON n.original_id = o.id AND n.state = 'issued'
GROUP BY o.id HAVING o.prepaid + sum(n.prepaid) < 0

-- name: no issued number is missing from its series
SELECT s.name FROM billing_invoiceseries s
LEFT JOIN billing_invoice i
    ON regexp_replace(i.number, '-[0-9]+$', '') = s.name AND i.state IN ('issued', 'void')
GROUP BY s.id HAVING count(i.id) <> s.last_number
UNION ALL
SELECT i.number FROM billing_invoice i WHERE i.state IN ('issued', 'void') AND NOT EXISTS (
    SELECT 1 FROM billing_invoiceseries s WHERE regexp_replace(i.number, '-[0-9]+$', '') = s.name)

-- name: no credit note takes back more than its invoice had
SELECT o.number FROM billing_invoice o JOIN billing_invoice c ON c.original_id = o.id AND c.state = 'issued'
GROUP BY o.id HAVING o.state <> 'issued' OR o.total + sum(c.total) < 0 OR o.tax + sum(c.tax) < 0
UNION ALL
SELECT format('%s line %s', i.number, o.position) FROM billing_invoiceline o
JOIN billing_invoice i ON i.id = o.invoice_id
JOIN billing_invoiceline c ON c.original_id = o.id
JOIN billing_invoice n ON n.id = c.invoice_id AND n.state = 'issued'
GROUP BY i.number, o.id HAVING (o.amount + sum(c.amount)) * sign(o.amount) < 0

-- name: no more is written off than an invoice came to
SELECT i.number FROM billing_writeoff w JOIN billing_invoice i ON i.id = w.invoice_id
WHERE i.tenant_id <> w.tenant_id OR i.kind = 'credit-note' OR w.amount > i.total

-- name: the taxes of a document add up to its lines
SELECT i.number FROM billing_invoice i LEFT JOIN (
    SELECT invoice_id, sum(net) AS net, sum(tax) AS tax FROM billing_invoicetax GROUP BY invoice_id
) t ON t.invoice_id = i.id
WHERE i.state IN ('issued', 'void') AND (i.subtotal, i.tax) <> (coalesce(t.net, 0), coalesce(t.tax, 0))
UNION ALL
SELECT format('{invoice:%s} at %s %s', invoice_id, category, rate) FROM (
    SELECT invoice_id, category, rate, sum(net) AS net, sum(sum(net)) OVER (PARTITION BY invoice_id) AS whole
    FROM (
        SELECT invoice_id, tax_category AS category, tax_rate AS rate, amount AS net FROM billing_invoiceline
        UNION ALL SELECT invoice_id, category, rate, -net FROM billing_invoicetax
    ) both_sides GROUP BY invoice_id, category, rate
) each WHERE net <> 0 AND whole = 0

-- name: every transfer is booked in full, or not at all
SELECT format('{transfer:%s}', t.id) FROM billing_transfer t
LEFT JOIN billing_transferpart p ON p.transfer_id = t.id
WHERE t.amount > 0
GROUP BY t.id HAVING coalesce(sum(p.amount), 0) <> CASE WHEN t.state = 'booked' THEN t.amount ELSE 0 END
UNION ALL
SELECT format('a part of {transfer:%s}', p.transfer_id) FROM billing_transferpart p
LEFT JOIN billing_payment y ON y.id = p.payment_id
LEFT JOIN billing_creditentry c ON c.id = p.credit_id
WHERE p.amount <> coalesce(y.amount, c.amount, p.amount)

-- name: no credit balance is below zero, and what it paid are payments
SELECT format('{tenant:%s} in %s', tenant_id, currency) FROM billing_creditentry
GROUP BY tenant_id, currency HAVING sum(amount) < 0
UNION ALL
SELECT format('a credit of {tenant:%s} that paid an invoice', e.tenant_id) FROM billing_creditentry e
JOIN billing_payment p ON p.id = e.payment_id WHERE p.amount + e.amount <> 0
UNION ALL
SELECT format('%s says %s of credit', i.number, i.from_credit) FROM billing_invoice i
WHERE i.from_credit > 0 AND i.state = 'issued' AND NOT EXISTS (
    SELECT FROM billing_creditentry e JOIN billing_payment p ON p.id = e.payment_id
    WHERE p.invoice_id = i.id AND p.received_on = i.issued_on AND e.amount = -i.from_credit)
