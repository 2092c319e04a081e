-- What waits to be rated again.

-- name: WAITING
-- Of %(messages)s those whose rating takes a lock that the rating for an earlier undone message takes, too: of an owner of its
-- accounts, or of who pays for one. A message that failed waits for none, and none for it. Should a tenant's earliest one kill its
-- worker each time, a second one goes beside it once it is an hour old. One of several tenants rates nothing, but becomes one for
-- each.
WITH message AS MATERIALIZED (
    SELECT id, created_at, kwargs FROM outbox_outboxmessage
    WHERE done_at IS NULL AND attempts = 0 AND task = ANY (%(tasks)s)
      AND NOT (task = 'billing.tasks.rate_tenants' AND jsonb_array_length(kwargs -> 'tenant_ids') > 1)
      AND id <= (SELECT max(id) FROM unnest(%(messages)s::bigint[]) AS id)
), account AS (
    SELECT m.id, m.created_at, jsonb_array_elements_text(m.kwargs -> 'account_ids')::bigint AS account_id FROM message m
    UNION
    SELECT m.id, m.created_at, o.account_id FROM message m
    CROSS JOIN jsonb_array_elements_text(m.kwargs -> 'tenant_ids') AS tenant (id)
    JOIN tenants_ownership o ON o.tenant_id = tenant.id::bigint
), owner AS (
    SELECT a.id, a.created_at, o.tenant_id FROM account a JOIN tenants_ownership o USING (account_id)
), locked AS (
    SELECT id, row_number() OVER turns AS place, first_value(created_at) OVER turns AS since FROM (
        TABLE owner UNION SELECT w.id, w.created_at, y.payer_id FROM owner w JOIN billing_payer y USING (tenant_id)
    ) each WINDOW turns AS (PARTITION BY tenant_id ORDER BY id)
)
SELECT DISTINCT id FROM locked
WHERE place > CASE WHEN since < now() - interval '1 hour' THEN 2 ELSE 1 END AND id = ANY (%(messages)s)

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
