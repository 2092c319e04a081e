-- Which issued lines have to be computed one by one.

-- name: TO_COMPUTE
-- All lines of a price in a period of which one project's are not plain: with terms, at several prices or one below zero, in
-- several parts of a unit; or do not add up to the only whole amount that is nearer than half a minor unit to their seconds
-- at their price. Numbers are compared, never divided. minor_units: by currency how many make one.
-- What is of no plain price is found once, whatever the planner makes of tables that were not analyzed yet.
WITH computed AS MATERIALIZED (
    SELECT l.tenant_id, coalesce(l.service_period_id, 0), coalesce(l.price_id, 0)
    FROM billing_invoiceline l JOIN billing_invoice i ON i.id = l.invoice_id
    LEFT JOIN jsonb_each_text(%(minor_units)s::jsonb) AS c (currency, minor) ON c.currency = i.currency
    WHERE i.state = 'issued' AND l.kind = 'usage'
    GROUP BY l.tenant_id, l.service_period_id, l.price_id, l.project_id
    HAVING bool_or(l.terms <> '{}') OR min(l.seconds_den) < max(l.seconds_den) OR count(l.unit_price) < count(*)
        OR min(l.unit_price) < max(l.unit_price) OR min(l.unit_price) < 0 OR min(i.currency) <> max(i.currency)
        OR 2 * abs(sum(l.amount) * min(l.seconds_den) * 3600
                   - sum(l.seconds_num) * min(l.unit_price) * min(c.minor)::numeric) < min(l.seconds_den) * 3600::numeric
           IS NOT TRUE
)
SELECT l.id FROM billing_invoiceline l
WHERE l.kind = 'usage' AND (l.tenant_id, coalesce(l.service_period_id, 0), coalesce(l.price_id, 0)) IN (TABLE computed)
