-- What plans say beside their prices, and who was on them when.

-- name: BY_STATEMENT
-- The tenants of whom prices of single units do not tell all.
SELECT t.tenant_id FROM unnest(%(tenants)s::bigint[]) AS t (tenant_id)
WHERE EXISTS (SELECT 1 FROM billing_payer y WHERE y.tenant_id = t.tenant_id OR y.payer_id = t.tenant_id)
   OR EXISTS (SELECT 1 FROM billing_chargedbytotal c WHERE c.tenant_id = t.tenant_id);

-- name: SUBSCRIBED
-- Each subscription to a plan that says anything to its tenant beside its prices, with the ids of its versions and
-- the days that they begin on.
SELECT s.*, p.*, t.*, v.ids, v.days
FROM billing_subscription s JOIN billing_plan p ON p.id = s.plan_id JOIN tenants_tenant t ON t.id = s.tenant_id
JOIN (
    SELECT plan_id, array_agg(id ORDER BY effective_from) AS ids, array_agg(effective_from ORDER BY effective_from) AS days
    FROM billing_planversion GROUP BY plan_id
) v ON v.plan_id = s.plan_id
WHERE s.tenant_id = ANY (%(tenants)s::bigint[]) AND p.settles <> 'wallet' AND s.plan_id IN (
    SELECT x.plan_id FROM (
        SELECT version_id, tenant_id FROM billing_allowance UNION ALL SELECT version_id, tenant_id FROM billing_fee
        UNION ALL SELECT version_id, tenant_id FROM billing_commitment
        UNION ALL SELECT version_id, tenant_id FROM billing_discount
    ) term JOIN billing_planversion x ON x.id = term.version_id
    WHERE term.tenant_id IS NULL OR term.tenant_id = ANY (%(tenants)s::bigint[])
)
ORDER BY s.tenant_id, s.since, s.id;

-- name: TERMS
-- What these versions say to all, and to one of the tenants alone, by kind.
SELECT * FROM (
    SELECT 'allowance' AS kind, id, version_id, tenant_id, name, valid_from, valid_until,
           hours, rollover, NULL::numeric AS amount, NULL::boolean AS in_advance, NULL::numeric AS overage_factor,
           NULL::numeric AS percent
    FROM billing_allowance
    UNION ALL
    SELECT 'fee', id, version_id, tenant_id, name, valid_from, valid_until, NULL, NULL, amount, in_advance, NULL, NULL
    FROM billing_fee
    UNION ALL
    SELECT 'commitment', id, version_id, tenant_id, name, valid_from, valid_until, NULL, NULL, amount, NULL, overage_factor,
           NULL
    FROM billing_commitment
    UNION ALL
    SELECT 'discount', id, version_id, tenant_id, name, valid_from, valid_until, NULL, NULL, amount, NULL, NULL, percent
    FROM billing_discount
) term
WHERE version_id = ANY (%(versions)s::bigint[]) AND (tenant_id IS NULL OR tenant_id = ANY (%(tenants)s::bigint[]))
ORDER BY id;
