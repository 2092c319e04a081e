-- What waits to be rated again.

-- name: WAITING
-- Of %(messages)s those whose rating takes a lock that the rating for an earlier undone message takes, too: of an owner of its
-- accounts, or of who pays for one. A message that failed waits for none, and none for it, nor does one that is older than an
-- hour, should it kill its worker each time; one of several tenants rates nothing, but becomes one for each.
WITH message AS MATERIALIZED (
    SELECT id, kwargs FROM outbox_outboxmessage
    WHERE done_at IS NULL AND attempts = 0 AND task = ANY (%(tasks)s) AND created_at > now() - interval '1 hour'
      AND NOT (task = 'billing.tasks.rate_tenants' AND jsonb_array_length(kwargs -> 'tenant_ids') > 1)
      AND id <= (SELECT max(id) FROM unnest(%(messages)s::bigint[]) AS id)
), account AS (
    SELECT m.id, jsonb_array_elements_text(m.kwargs -> 'account_ids')::bigint AS account_id FROM message m
    UNION
    SELECT m.id, o.account_id FROM message m
    CROSS JOIN jsonb_array_elements_text(m.kwargs -> 'tenant_ids') AS tenant (id)
    JOIN tenants_ownership o ON o.tenant_id = tenant.id::bigint
), owner AS (
    SELECT a.id, o.tenant_id FROM account a JOIN tenants_ownership o USING (account_id)
), locked AS (
    SELECT id, min(id) OVER (PARTITION BY tenant_id) AS earliest FROM (
        TABLE owner UNION SELECT w.id, y.payer_id FROM owner w JOIN billing_payer y USING (tenant_id)
    ) each
)
SELECT DISTINCT id FROM locked WHERE id > earliest AND id = ANY (%(messages)s)

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
