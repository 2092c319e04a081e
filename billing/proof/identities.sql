-- Identities that must hold over all months: each statement returns one text per place where its name is not true.

-- name: period totals equal rated usage
SELECT format('{period:%s}, {project:%s}, %s %s: %s kept, %s rated', period_id, project_id, resource, verdict,
              sum(kept), sum(rated))
FROM (
    SELECT period_id, project_id, resource, verdict, price_id, share_den, payer_id, units AS kept, 0 AS rated
    FROM billing_periodtotal
    UNION ALL
    SELECT period_id, project_id, resource, verdict, price_id, share_den, payer_id, 0, units FROM prove_sum
) both_sides
GROUP BY period_id, project_id, resource, verdict, price_id, share_den, payer_id HAVING sum(kept) <> sum(rated)

-- name: corrected prices are looked at again
SELECT format('{period:%s}, {project:%s}, {price:%s}', t.period_id, t.project_id, t.price_id)
FROM billing_periodtotal t JOIN billing_price p ON p.id = t.price_id
WHERE t.last_rated_id < p.corrected_through

-- name: invoice lines add up to their subtotal
SELECT i.number FROM billing_invoice i LEFT JOIN billing_invoiceline l ON l.invoice_id = i.id
WHERE i.state = 'issued' GROUP BY i.id HAVING i.subtotal <> coalesce(sum(l.amount), 0)

-- name: wallet totals equal rated usage
SELECT format('{tenant:%s}, %s: %s kept, %s rated', tenant_id, unit, sum(kept), sum(rated)) FROM (
    SELECT tenant_id, unit, price_id, share_den, units AS kept, 0 AS rated FROM billing_wallettotal
    UNION ALL
    SELECT r.tenant_id, p.currency, r.price_id, r.share_den, 0, r.units
    FROM prove_sum r JOIN billing_price c ON c.id = r.price_id
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
GROUP BY o.id HAVING o.state <> 'issued' OR o.total + sum(c.total) < 0
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

-- name: sums over all invoices take of each what its balance says
SELECT format('{invoice:%s}', b.invoice_id) FROM billing_invoicebalance b
LEFT JOIN billing_invoiceremainder r ON r.invoice_id = b.invoice_id WHERE b."left" IS DISTINCT FROM r."left"

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
