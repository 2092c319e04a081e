-- What is read of tenants' periods before a close.

-- name: RATED_PERIODS
-- By who pays, where that is not who used it, and by whose use it is, each period up to a moment that has rated usage: its newest
-- rated row, whether any is without a price, whether any is charged, and the newest one that an issued invoice of who pays
-- covers. What others used is closed where who pays has closed a period that reaches as far.
SELECT payer_id, tenant_id, period_id, start, "end",
       CASE WHEN payer_id IS NULL THEN closed_at IS NOT NULL ELSE coalesce("end" <= c.reached, false) END,
       newest, unpriced, charged, coalesce(covered, 0)
FROM (
    SELECT e.*, max(e.rated_through) OVER (PARTITION BY e.billed_to ORDER BY e."end" DESC) AS covered
    FROM (
        SELECT coalesce(t.payer_id, t.tenant_id) AS billed_to, t.*, p.start, p."end", p.closed_at,
               NULL::bigint AS rated_through
        FROM (
            SELECT payer_id, tenant_id, period_id, max(last_rated_id) AS newest, bool_or(verdict = 'unpriced') AS unpriced,
                   bool_or(verdict = 'charged' AND units > 0) AS charged
            FROM billing_periodtotal
            WHERE payer_id IS NULL AND tenant_id = ANY (%(tenants)s::bigint[]) OR payer_id = ANY (%(tenants)s::bigint[])
            GROUP BY 1, 2, 3
        ) t JOIN billing_billingperiod p ON p.id = t.period_id AND p."end" <= %(until)s::timestamptz
        UNION ALL
        SELECT tenant_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, period_end, NULL, rated_through
        FROM billing_invoice WHERE state = 'issued' AND tenant_id = ANY (%(tenants)s::bigint[])
    ) e
) x LEFT JOIN (
    SELECT tenant_id AS closed_by, max("end") AS reached FROM billing_billingperiod
    WHERE tenant_id = ANY (%(tenants)s::bigint[]) AND closed_at IS NOT NULL GROUP BY tenant_id
) c ON c.closed_by = payer_id
WHERE period_id IS NOT NULL ORDER BY period_id;
