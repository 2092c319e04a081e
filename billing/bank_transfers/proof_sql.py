"""What must hold of transfers and credit balances: identity → a query of one text per place where it is broken."""

from __future__ import annotations

CHECKS = {
    "every transfer is booked in full, or not at all": """
        SELECT format('{transfer:%s}', t.id) FROM billing_transfer t
        LEFT JOIN billing_transferpart p ON p.transfer_id = t.id
        WHERE t.amount > 0
        GROUP BY t.id HAVING coalesce(sum(p.amount), 0) <> CASE WHEN t.state = 'booked' THEN t.amount ELSE 0 END
        UNION ALL
        SELECT format('a part of {transfer:%s}', p.transfer_id) FROM billing_transferpart p
        LEFT JOIN billing_payment y ON y.id = p.payment_id
        LEFT JOIN billing_creditentry c ON c.id = p.credit_id
        WHERE p.amount <> coalesce(y.amount, c.amount, p.amount)
        """,
    "no credit balance is below zero, and what it paid are payments": """
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
        """,
}
