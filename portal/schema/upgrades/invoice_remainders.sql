-- What is left of each document, for sums over all of them.
CREATE VIEW billing_invoiceremainder WITH (security_invoker = true) AS
SELECT i.id AS invoice_id, o.unpaid - least(coalesce(f.amount, 0), greatest(o.unpaid, 0)) AS "left"
FROM billing_invoice i
LEFT JOIN (
    SELECT invoice_id, sum(amount)::bigint AS received FROM billing_payment GROUP BY invoice_id
) p ON p.invoice_id = i.id
LEFT JOIN (
    SELECT original_id, sum(total - prepaid)::bigint AS credited FROM billing_invoice WHERE state = 'issued'
    GROUP BY original_id
) n ON n.original_id = i.id
LEFT JOIN (
    SELECT invoice_id, sum(amount)::bigint AS amount FROM billing_writeoff WHERE undone_at IS NULL GROUP BY invoice_id
) f ON f.invoice_id = i.id
CROSS JOIN LATERAL (
    SELECT i.total - i.prepaid - coalesce(p.received, 0) + coalesce(n.credited, 0) AS unpaid
) o;
GRANT SELECT, INSERT, UPDATE, DELETE ON billing_invoiceremainder TO clustertab_operator;
GRANT SELECT ON billing_invoiceremainder TO clustertab_agent;
