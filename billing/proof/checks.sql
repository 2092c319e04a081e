-- Sums over all months: `prove_sum` has the partial sums of each, kept or just recomputed.

-- name: LINES
-- What lines hold (positive) and what they cover (negative), per line key; sums to nothing where both agree. Parts of one
-- denominator that do are left out.
SELECT payer_id, period_id, project_id, price_id, sum(units), den FROM (
    SELECT i.tenant_id AS payer_id, l.service_period_id AS period_id, l.project_id, l.price_id, l.seconds_num AS units,
           l.seconds_den AS den
    FROM billing_invoiceline l JOIN billing_invoice i ON i.id = l.invoice_id
    WHERE i.state = 'issued' AND l.kind = 'usage'
    UNION ALL
    SELECT c.payer_id, s.period_id, s.project_id, s.price_id, -s.units, s.share_den
    FROM prove_sum s
    JOIN prove_covered c
      ON c.period_id = s.period_id AND c.payer_id = coalesce(s.payer_id, s.tenant_id) AND s.newest <= c.through
    WHERE s.verdict = 'charged' AND s.price_id NOT IN (SELECT price_id FROM prove_wallet)
) both_sides
GROUP BY payer_id, period_id, project_id, price_id, den HAVING sum(units) <> 0

-- name: WALLET_DAYS
SELECT w.id, w.unit, d.day, d.booked, t.share_den, sum(t.units * p.unit_price)
FROM billing_walletday d JOIN billing_wallet w ON w.id = d.wallet_id
JOIN billing_walletscheme s ON s.id = w.scheme_id
JOIN billing_walletbooking b ON b.tenant_id = w.tenant_id AND NOT b.due
JOIN billing_wallettotal t ON t.tenant_id = w.tenant_id AND t.unit = w.unit AND t.day = d.day
    AND (s.scope <> 'project' OR t.project_id = w.project_id) AND (s.scope <> 'user' OR t."user" = w."user")
JOIN billing_price p ON p.id = t.price_id
GROUP BY w.id, w.unit, d.day, d.booked, t.share_den
