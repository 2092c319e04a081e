-- Whether prices of single units tell all that is charged.

-- name: OTHER_CHARGES
-- Whether there is more: another payer, terms, lines by hand that wait, and since when what was rated is beyond the
-- invoices that cover it.
SELECT EXISTS (
    SELECT 1 FROM billing_payer y WHERE y.tenant_id = %(tenant)s OR y.payer_id = %(tenant)s
), EXISTS (
    SELECT 1 FROM billing_chargedbytotal WHERE tenant_id = %(tenant)s
), EXISTS (
    SELECT 1 FROM billing_manualline l WHERE l.tenant_id = %(tenant)s AND NOT EXISTS (
        SELECT 1 FROM billing_invoiceline x JOIN billing_invoice i ON i.id = x.invoice_id
        WHERE x.kind = 'manual' AND x.term_id = l.id AND i.state = 'issued')
), (
    SELECT min(x.ends) FROM (
        SELECT e.ends, e.newest, max(e.reached) OVER (ORDER BY e.ends DESC) AS reached FROM (
            SELECT p."end" AS ends, t.newest, NULL::bigint AS reached FROM (
                SELECT period_id, max(last_rated_id) AS newest FROM billing_periodtotal
                WHERE tenant_id = %(tenant)s AND verdict = 'charged' GROUP BY period_id
            ) t CROSS JOIN LATERAL (SELECT "end" FROM billing_billingperiod WHERE id = t.period_id OFFSET 0) p
            UNION ALL
            SELECT i.period_end, NULL, i.rated_through FROM billing_invoice i
            WHERE i.tenant_id = %(tenant)s AND i.state = 'issued'
        ) e
    ) x WHERE x.newest > coalesce(x.reached, 0)
);

-- name: BY_TOTALS
-- The periods around a moment of tenants that are charged by more than single units.
SELECT b.* FROM billing_billingperiod b
WHERE b.start <= %(moment)s AND b."end" > %(moment)s AND b.tenant_id IN (
    SELECT s.tenant_id FROM billing_chargedbytotal s JOIN billing_plan l ON l.id = s.plan_id
    WHERE l.settles <> 'wallet'
);
