-- What plans say beside their prices, and who was on them when.

-- name: BY_STATEMENT
-- Whether prices of single units do not tell all that a tenant is charged.
SELECT EXISTS (SELECT 1 FROM billing_payer y WHERE y.tenant_id = %(tenant)s OR y.payer_id = %(tenant)s)
    OR EXISTS (SELECT 1 FROM billing_chargedbytotal c WHERE c.tenant_id = %(tenant)s);

-- name: SUBSCRIBED
-- Each subscription to a plan that says anything to its tenant beside its prices, with the ids of its versions and the days
-- that they begin on; the first to the plan in a row for each term of these, to all and to one of the tenants alone.
WITH term AS MATERIALIZED (
    SELECT * FROM (
        SELECT 'allowance' AS kind, id, version_id, tenant_id, name, valid_from, valid_until,
               hours, rollover, NULL::numeric AS amount, NULL::boolean AS in_advance, NULL::numeric AS overage_factor,
               NULL::numeric AS percent
        FROM billing_allowance
        UNION ALL
        SELECT 'fee', id, version_id, tenant_id, name, valid_from, valid_until, NULL, NULL, amount, in_advance, NULL, NULL
        FROM billing_fee
        UNION ALL
        SELECT 'commitment', id, version_id, tenant_id, name, valid_from, valid_until, NULL, NULL, amount, NULL,
               overage_factor, NULL
        FROM billing_commitment
        UNION ALL
        SELECT 'discount', id, version_id, tenant_id, name, valid_from, valid_until, NULL, NULL, amount, NULL, NULL, percent
        FROM billing_discount
    ) x WHERE tenant_id IS NULL OR tenant_id = ANY (%(tenants)s::bigint[])
)
SELECT s.*, p.*, t.*, v.ids, v.days, a.*
FROM billing_subscription s JOIN billing_plan p ON p.id = s.plan_id JOIN tenants_tenant t ON t.id = s.tenant_id
JOIN (
    SELECT plan_id, array_agg(id ORDER BY effective_from) AS ids, array_agg(effective_from ORDER BY effective_from) AS days
    FROM billing_planversion GROUP BY plan_id
) v ON v.plan_id = s.plan_id
LEFT JOIN term a ON a.version_id = ANY (v.ids) AND NOT EXISTS (
    SELECT FROM billing_subscription e
    WHERE e.plan_id = s.plan_id AND e.tenant_id = ANY (%(tenants)s::bigint[]) AND e.id < s.id
)
WHERE s.tenant_id = ANY (%(tenants)s::bigint[]) AND p.settles <> 'wallet' AND s.plan_id IN (
    SELECT x.plan_id FROM term JOIN billing_planversion x ON x.id = term.version_id
)
ORDER BY s.tenant_id, s.since, s.id, a.id;
