-- name: OUTSTANDING
-- What is to be paid of a tenant's invoices, and below zero what is to be paid back.
SELECT i.currency, b."left", i.number, i.due_on, b.under_way
FROM billing_invoice i JOIN billing_invoicebalance b ON b.invoice_id = i.id
WHERE i.tenant_id = %(tenant)s AND i.state = 'issued' AND i.kind <> 'credit-note' AND b."left" <> 0
ORDER BY i.number;
