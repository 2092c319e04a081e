-- name: OUTSTANDING
-- A tenant's invoices of which something is to be paid or, below zero, to be paid back, and the newest of all its
-- documents; with whether each is one of the newest.
SELECT i.*, b.*, n.id IS NOT NULL
FROM billing_invoice i JOIN billing_invoicebalance b ON b.invoice_id = i.id
LEFT JOIN (
    SELECT id FROM billing_invoice WHERE tenant_id = %(tenant)s AND state IN ('issued', 'void')
    ORDER BY period_start DESC, id DESC LIMIT %(newest)s
) n ON n.id = i.id
WHERE i.tenant_id = %(tenant)s
  AND (n.id IS NOT NULL OR i.state = 'issued' AND i.kind <> 'credit-note' AND b."left" <> 0)
ORDER BY i.number;
