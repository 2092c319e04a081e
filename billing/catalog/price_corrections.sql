-- A price comes to something else on all of its days. What was rated by it names the price alone, and stays.

-- name: LOCK_TENANTS
-- Whoever is or was on the plan, has used by the price, or pays for one of those: nothing is rated, issued or booked for
-- them meanwhile. In order of id, as by every other holder of several.
WITH tenant AS (
    SELECT s.tenant_id FROM billing_subscription s JOIN billing_planversion v ON v.plan_id = s.plan_id
    WHERE v.id = %(version)s
    UNION SELECT tenant_id FROM billing_periodtotal WHERE price_id = %(price)s
)
SELECT id FROM tenants_tenant WHERE id IN (
    SELECT tenant_id FROM tenant UNION SELECT y.payer_id FROM billing_payer y WHERE y.tenant_id IN (TABLE tenant)
) ORDER BY id FOR NO KEY UPDATE

-- name: NUMBER
-- Behind all that was rated, and all that documents reach to.
SELECT nextval('billing_ratedusage_id_seq')

-- name: TOTALS
-- Closes look at the periods of these again, as at those that late usage came to.
UPDATE billing_periodtotal SET last_rated_id = %(number)s WHERE price_id = %(price)s

-- name: WALLETS_DUE
UPDATE billing_walletbooking SET due = true
WHERE tenant_id IN (SELECT tenant_id FROM billing_periodtotal WHERE price_id = %(price)s)
  AND EXISTS (SELECT FROM billing_planversion v JOIN billing_plan p ON p.id = v.plan_id
              WHERE v.id = %(version)s AND p.settles = 'wallet')

-- name: SEVERAL_PRICES
-- Whose lists of the most expensive jobs may have another order now, which their next rating finds: those with jobs of
-- several prices. What has a single one is in its place at once.
SELECT t.tenant_id FROM (
    SELECT x.tenant_id FROM billing_periodtotal x
    WHERE x.tenant_id IN (SELECT y.tenant_id FROM billing_periodtotal y WHERE y.price_id = %(price)s)
    GROUP BY x.tenant_id HAVING count(DISTINCT x.price_id) > 1 OFFSET 0
) t
WHERE EXISTS (SELECT FROM billing_ratedjob j
              WHERE j.tenant_id = t.tenant_id AND j.meter = '' AND j.cost_price_id IS NULL AND j.cost_units > 0)
ORDER BY t.tenant_id
