-- name: TOP_JOBS
-- The jobs that ran in the period and have cost most in all: the first of those that rating keeps of it, of each price
-- some. A price that was corrected moves all that it alone made up at once.
SELECT r.*, p.*, (
    SELECT EXISTS (SELECT FROM billing_ratedjob h WHERE h.tenant_id = %(tenant)s AND h.part_of <> '')
) AS has_parts
FROM billing_periodtopjob k CROSS JOIN LATERAL (
    SELECT * FROM billing_ratedjob j WHERE j.record_id = k.record_id AND j.tenant_id = k.tenant_id OFFSET 0
) r JOIN tenants_project p ON p.id = r.project_id LEFT JOIN billing_price c ON c.id = r.cost_price_id
WHERE k.tenant_id = %(tenant)s AND k.period_id = %(period)s
ORDER BY r.cost_units * coalesce(c.unit_price, 1) DESC, r.cost_units DESC, r.gpu_units DESC, r.record_id DESC
LIMIT %(most)s;

-- name: COSTS
-- Of each of these jobs what it used, by verdict and price.
SELECT u.record_id, u.verdict, u.share_den, u.units, g.meter, g.unit_price, g.currency, g.by_total, g.title, g.unit
FROM (
    SELECT record_id, verdict, price_id, share_den, sum(units::numeric * share_num) AS units
    FROM billing_ratedusage
    WHERE tenant_id = %(tenant)s AND record_id = ANY (%(records)s)
      AND service_month >= %(first_month)s AND service_month <= %(last_month)s
    GROUP BY record_id, verdict, price_id, share_den
    HAVING sum(units::numeric * share_num) <> 0
) u
LEFT JOIN billing_pricetag g ON g.price_id = u.price_id;

-- name: PIECES
-- The pieces of one job. An invoice covers what was rated up to `rated_through`, in its own period and those before it;
-- its line is that of the same project and price, not of a correction of the price. What it takes back and charges again
-- adds nothing, and has no line.
SELECT * FROM (
    SELECT c.name, r.resource, r.verdict, r.service_from, r.service_to, sum(r.units) AS units, r.share_num, r.share_den,
           r.price_id, i.number, l.position AS line, y.payer, i.rated_through, p."end"
    FROM billing_ratedusage r
    JOIN tenants_project c ON c.id = r.project_id
    JOIN billing_billingperiod p ON p.id = r.period_id
    LEFT JOIN LATERAL (
        SELECT v.id, v.number, v.rated_through FROM billing_invoice v
        WHERE v.tenant_id = r.tenant_id AND r.payer_id IS NULL AND v.state = 'issued' AND r.verdict = 'charged'
          AND v.period_end >= p."end" AND v.rated_through >= r.id
        ORDER BY v.rated_through, v.id LIMIT 1
    ) i ON true
    LEFT JOIN LATERAL (
        SELECT coalesce(min(n.position) FILTER (WHERE n.seconds_num <> 0), min(n.position)) AS position
        FROM billing_invoiceline n
        WHERE n.invoice_id = i.id AND n.tenant_id = r.tenant_id AND n.kind = 'usage'
          AND n.service_period_id = r.period_id AND n.project_id = r.project_id AND n.price_id = r.price_id
    ) l ON true
    LEFT JOIN (SELECT DISTINCT tenant_id, payer_id, payer FROM billing_paying) y
      ON y.tenant_id = r.tenant_id AND y.payer_id = r.payer_id
    WHERE r.tenant_id = %(tenant)s AND r.record_id = %(record)s
    GROUP BY c.name, r.resource, r.verdict, r.service_from, r.service_to, r.share_num, r.share_den, r.price_id,
             i.number, l.position, y.payer, i.rated_through, p."end"
    HAVING sum(r.units) <> 0
    UNION ALL
    SELECT c.name, w.resource, 'waived', w.service_from, w.service_to, w.units, 1, w.share_den, NULL, NULL, NULL, NULL,
           NULL, NULL
    FROM billing_waivedpart w JOIN tenants_project c ON c.id = w.project_id
    WHERE w.tenant_id = %(tenant)s AND w.record_id = %(record)s AND w.units <> 0
) piece
ORDER BY service_from, array_position(ARRAY['gpu', 'cpu', 'memory', 'gpu-memory'], resource), number NULLS LAST,
         units > 0, service_to;

-- name: PRICES
-- Prices as their tenant may see them; what each came to until a number, where it was corrected; and then how far documents
-- reach, the earliest first.
SELECT t.*, c.numbers, c.amounts, i.reach, i.ends, i.names
FROM billing_pricetag t
LEFT JOIN LATERAL (
    SELECT array_agg(number ORDER BY number) AS numbers, array_agg(unit_price ORDER BY number) AS amounts
    FROM billing_pricecorrection WHERE price_id = t.price_id
) c ON true
LEFT JOIN LATERAL (
    SELECT array_agg(rated_through ORDER BY rated_through, id) AS reach,
           array_agg(period_end ORDER BY rated_through, id) AS ends, array_agg(number ORDER BY rated_through, id) AS names
    FROM billing_invoice WHERE tenant_id = %(tenant)s AND state = 'issued' AND c.numbers IS NOT NULL
) i ON true
WHERE t.price_id = ANY (%(prices)s);

-- name: CHOICES
-- GPU models that a tenant used, and its first users by name, each found by a look into the index: a large tenant has many
-- series of each.
SELECT ARRAY(
    SELECT DISTINCT gpu_model FROM billing_periodtotal
    WHERE tenant_id = %(tenant)s AND gpu_model <> '' AND resource = ANY (%(resources)s) ORDER BY gpu_model
), ARRAY(
    WITH RECURSIVE named AS (
        (SELECT "user" FROM billing_usageseries WHERE tenant_id = %(tenant)s AND "user" > '' ORDER BY "user" LIMIT 1)
        UNION ALL
        SELECT (SELECT s."user" FROM billing_usageseries s WHERE s.tenant_id = %(tenant)s AND s."user" > n."user"
                ORDER BY s."user" LIMIT 1)
        FROM named n WHERE n."user" IS NOT NULL
    )
    SELECT "user" FROM named WHERE "user" IS NOT NULL LIMIT %(most)s
);
