-- What waits to be rated again.

-- name: TENANTS
-- Those of %(tenants)s whose usage, or usage that they pay for or paid for when it was rated, undone messages name. After
-- a corrected price no rated row changes, only the order of the most expensive jobs.
WITH message AS MATERIALIZED (
    SELECT kwargs FROM outbox_outboxmessage WHERE done_at IS NULL AND task = ANY (%(tasks)s) AND NOT kwargs ? 'order_only'
), tenant AS MATERIALIZED (
    SELECT jsonb_array_elements_text(kwargs -> 'tenant_ids')::bigint AS id FROM message
    UNION
    SELECT o.tenant_id FROM message CROSS JOIN jsonb_array_elements_text(kwargs -> 'account_ids') AS account (id)
    JOIN tenants_ownership o ON o.account_id = account.id::bigint
)
SELECT id FROM tenant WHERE id = ANY (%(tenants)s)
UNION
SELECT payer_id FROM billing_payer WHERE payer_id = ANY (%(tenants)s) AND tenant_id IN (TABLE tenant)
UNION
SELECT payer_id FROM billing_periodtotal WHERE payer_id = ANY (%(tenants)s) AND tenant_id IN (TABLE tenant)
