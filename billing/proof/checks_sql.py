"""The statements of `proof`. Each sums from the rows themselves, never from what it is to prove."""

from __future__ import annotations

from billing.rating.resources_sql import RESOURCES, amount, parts, rated
from clusters.usage import active

# Up to which rated row each billing period is covered by issued invoices of its tenant, or of another that pays.
_COVERED = """
covered AS (
    SELECT p.id AS period_id, w.payer_id, max(i.rated_through) AS through
    FROM billing_billingperiod p JOIN (
        SELECT id AS tenant_id, id AS payer_id FROM tenants_tenant
        UNION SELECT tenant_id, payer_id FROM billing_payer
    ) w ON w.tenant_id = p.tenant_id
    JOIN billing_invoice i ON i.tenant_id = w.payer_id AND i.state = 'issued' AND i.period_end >= p."end"
    GROUP BY p.id, w.payer_id
)
"""


# Prices of plans that are paid out of wallets: their usage is billed once it is booked there, and on no invoice.
_BY_WALLET = """
by_wallet AS (
    SELECT c.id AS price_id FROM billing_price c JOIN billing_planversion v ON v.id = c.version_id
    JOIN billing_plan p ON p.id = v.plan_id WHERE p.settles = 'wallet'
)
"""


_COUNT = amount("r.resource")
_AMOUNT = f"({_COUNT}::numeric * CASE r.resource WHEN 'gpu' THEN u.share_num ELSE 1 END)"
_DEN = parts("r.resource")

# Over the records of `usage_input`: (cluster, resource, part, numerator, denominator) in resource-seconds. A measure
# that no plan of the owner charges is waived without a rated row.
SUMS = f"""
WITH bounds AS (
    SELECT coalesce(extract(epoch FROM %(month)s::date::timestamp AT TIME ZONE 'UTC')::bigint, 0) AS lo,
           coalesce(extract(epoch FROM (%(month)s::date + interval '1 month') AT TIME ZONE 'UTC')::bigint,
                    9223372036854775807) AS hi
), resource (resource) AS (
    VALUES {RESOURCES}
), {_COVERED.strip()}, {_BY_WALLET.strip()}, held AS (
    SELECT u.*, b.lo, b.hi FROM usage_input u CROSS JOIN bounds b
    WHERE u.started < b.hi AND u.finish > b.lo
), owned AS (
    SELECT u.*, o.tenant_id, greatest(coalesce(extract(epoch FROM o.since)::bigint, 0), u.lo) AS since,
           least(coalesce(extract(epoch FROM o.until)::bigint, 9223372036854775807), u.hi) AS until
    FROM held u JOIN tenants_ownership o ON o.account_id = u.account_id
)
SELECT u.cluster, r.resource, 'allocated', sum({_AMOUNT} * {active("u.lo", "u.hi", "u")}), {_DEN} AS den
FROM held u JOIN resource r ON {_COUNT} > 0 GROUP BY u.cluster, r.resource, den
UNION ALL
SELECT cluster, resource, 'unassigned', sum(num), den FROM (
    SELECT u.cluster, r.resource, {_AMOUNT} * {active("u.lo", "u.hi", "u")} AS num, {_DEN} AS den
    FROM held u JOIN resource r ON {_COUNT} > 0
    UNION ALL
    SELECT u.cluster, r.resource, -{_AMOUNT} * {active("u.since", "u.until", "u")}, {_DEN}
    FROM owned u JOIN resource r ON {_COUNT} > 0
    WHERE u.since < u.finish AND u.until > u.started AND u.since < u.until
) gap GROUP BY cluster, resource, den
UNION ALL
SELECT u.cluster, r.resource, 'waived', sum({_AMOUNT} * {active("u.since", "u.until", "u")}), {_DEN} AS den
FROM owned u JOIN resource r ON {_COUNT} > 0 AND NOT {rated("u.tenant_id", "r.resource")}
WHERE u.since < u.finish AND u.until > u.started AND u.since < u.until
GROUP BY u.cluster, r.resource, den
UNION ALL
SELECT u.cluster, r.resource,
       CASE WHEN r.verdict <> 'charged' THEN r.verdict
            WHEN r.id <= CASE WHEN w.price_id IS NULL THEN c.through ELSE b.rated_through END THEN 'billed'
            ELSE 'pending' END AS part,
       sum(r.units::numeric * r.share_num), r.share_den
FROM usage_input u JOIN billing_ratedusage r ON r.record_id = u.record_id
LEFT JOIN covered c ON c.period_id = r.period_id AND c.payer_id = coalesce(r.payer_id, r.tenant_id)
LEFT JOIN by_wallet w ON w.price_id = r.price_id
LEFT JOIN billing_walletbooking b ON b.tenant_id = r.tenant_id
WHERE %(month)s::date IS NULL OR r.service_month = %(month)s::date
GROUP BY u.cluster, r.resource, part, r.share_den
"""

# Over the records of `usage_input`: where what a tenant's ownership held of a job is not what stands rated for it,
# and how many rated rows the records have. Neither a wrong job that another makes up for, nor usage rated for
# somebody who no longer owns it, shows in the sums of a cluster.
JOBS = f"""
WITH resource (resource) AS (
    VALUES {RESOURCES}
), owned AS (
    SELECT u.*, o.tenant_id, coalesce(extract(epoch FROM o.since)::bigint, 0) AS since,
           coalesce(extract(epoch FROM o.until)::bigint, 9223372036854775807) AS until
    FROM usage_input u JOIN tenants_ownership o ON o.account_id = u.account_id WHERE u.started IS NOT NULL
), job AS (
    SELECT u.record_id, u.tenant_id, r.resource,
           {_COUNT}::numeric * {active("u.since", "u.until", "u")} AS held, 0::numeric AS rated
    FROM owned u JOIN resource r ON {_COUNT} > 0 AND {rated("u.tenant_id", "r.resource")}
    WHERE u.since < u.finish AND u.until > u.started
    UNION ALL
    SELECT r.record_id, r.tenant_id, r.resource, 0, r.units
    FROM usage_input u JOIN billing_ratedusage r ON r.record_id = u.record_id
)
SELECT format('{{job:%s}}, {{tenant:%s}}, %s: %s s held, %s s rated',
              record_id, tenant_id, resource, sum(held), sum(rated))
FROM job GROUP BY record_id, tenant_id, resource HAVING sum(held) <> sum(rated) LIMIT 10
"""

RATED_ROWS = "SELECT count(*) FROM usage_input u JOIN billing_ratedusage r ON r.record_id = u.record_id"
ALL_RATED_ROWS = "SELECT count(*) FROM billing_ratedusage"

# What lines hold (positive) and what they cover (negative), per line key; sums to nothing where both agree.
LINES = f"""
WITH {_COVERED.strip()}, {_BY_WALLET.strip()}
SELECT i.tenant_id, l.service_period_id, l.project_id, l.price_id, l.seconds_num, l.seconds_den
FROM billing_invoiceline l JOIN billing_invoice i ON i.id = l.invoice_id
WHERE i.state = 'issued' AND l.kind = 'usage'
UNION ALL
SELECT c.payer_id, r.period_id, r.project_id, r.price_id, -sum(r.units::numeric * r.share_num), r.share_den
FROM billing_ratedusage r
JOIN covered c ON c.period_id = r.period_id AND c.payer_id = coalesce(r.payer_id, r.tenant_id) AND r.id <= c.through
WHERE r.verdict = 'charged' AND r.price_id NOT IN (SELECT price_id FROM by_wallet)
GROUP BY c.payer_id, r.period_id, r.project_id, r.price_id, r.share_den
"""

WALLET_DAYS = """
SELECT w.id, w.unit, d.day, d.booked, t.share_den, sum(t.amount)
FROM billing_walletday d JOIN billing_wallet w ON w.id = d.wallet_id
JOIN billing_walletscheme s ON s.id = w.scheme_id
JOIN billing_walletbooking b ON b.tenant_id = w.tenant_id AND NOT b.due
JOIN billing_wallettotal t ON t.tenant_id = w.tenant_id AND t.unit = w.unit AND t.day = d.day
    AND (s.scope <> 'project' OR t.project_id = w.project_id) AND (s.scope <> 'user' OR t."user" = w."user")
GROUP BY w.id, w.unit, d.day, d.booked, t.share_den
"""

CHECKS = {
    "period totals equal rated usage": """
        SELECT format('{period:%s}, {project:%s}, %s %s: %s kept, %s rated', period_id, project_id, resource, verdict,
                      sum(kept), sum(rated))
        FROM (
            SELECT period_id, project_id, resource, verdict, price_id, share_den, payer_id, units AS kept, 0 AS rated
            FROM billing_periodtotal
            UNION ALL
            SELECT period_id, project_id, resource, verdict, price_id, share_den, payer_id, 0,
                   units::numeric * share_num
            FROM billing_ratedusage
        ) both_sides
        GROUP BY period_id, project_id, resource, verdict, price_id, share_den, payer_id HAVING sum(kept) <> sum(rated)
        """,
    "day totals equal rated usage": """
        SELECT format('{tenant:%s}, %s: %s kept, %s rated', tenant_id, resource, sum(kept), sum(rated)) FROM (
            SELECT tenant_id, resource, share_den, units AS kept, 0 AS rated FROM billing_daytotal
            UNION ALL
            SELECT tenant_id, resource, share_den, 0, units::numeric * share_num FROM billing_ratedusage
            WHERE resource = 'gpu' OR verdict = 'charged'
        ) both_sides GROUP BY tenant_id, resource, share_den HAVING sum(kept) <> sum(rated)
        """,
    "user totals equal rated usage": """
        SELECT format('{period:%s}, %s: %s kept, %s rated', period_id, resource, sum(kept), sum(rated)) FROM (
            SELECT period_id, resource, share_den, units AS kept, 0 AS rated FROM billing_usertotal
            UNION ALL
            SELECT period_id, resource, share_den, 0, units::numeric * share_num FROM billing_ratedusage
            WHERE resource = 'gpu' OR verdict = 'charged'
        ) both_sides GROUP BY period_id, resource, share_den HAVING sum(kept) <> sum(rated)
        """,
    "totals cost what their units cost": """
        SELECT format('{period:%s}, {project:%s}, %s: %s kept', t.period_id, t.project_id,
                      coalesce(format('{price:%s}', t.price_id), 'no price'), t.amount)
        FROM billing_periodtotal t LEFT JOIN billing_price p ON p.id = t.price_id
        WHERE t.amount <> coalesce(t.units * p.unit_price, 0)
        UNION ALL
        SELECT format('{tenant:%s}, %s: days keep %s, periods %s', tenant_id, resource, sum(days), sum(periods)) FROM (
            SELECT tenant_id, resource, share_den, amount AS days, 0 AS periods FROM billing_daytotal
            UNION ALL SELECT tenant_id, resource, share_den, 0, amount FROM billing_periodtotal
        ) both_sides GROUP BY tenant_id, resource, share_den HAVING sum(days) <> sum(periods)
        """,
    "every job has its tenant and project": """
        SELECT format('{job:%s}, {tenant:%s}, {project:%s}', j.record_id, j.tenant_id, j.project_id)
        FROM billing_ratedjob j LEFT JOIN tenants_project p ON p.id = j.project_id AND p.tenant_id = j.tenant_id
        WHERE p.id IS NULL
        """,
    "invoice lines add up to their subtotal": """
        SELECT i.number FROM billing_invoice i LEFT JOIN billing_invoiceline l ON l.invoice_id = i.id
        WHERE i.state = 'issued' GROUP BY i.id HAVING i.subtotal <> coalesce(sum(l.amount), 0)
        """,
    "wallet totals equal rated usage": """
        SELECT format('{tenant:%s}, %s: %s kept, %s rated', tenant_id, unit, sum(kept), sum(rated)) FROM (
            SELECT tenant_id, unit, share_den, amount AS kept, 0 AS rated FROM billing_wallettotal
            UNION ALL
            SELECT r.tenant_id, p.currency, r.share_den, 0, r.units::numeric * r.share_num * c.unit_price
            FROM billing_ratedusage r JOIN billing_price c ON c.id = r.price_id
            JOIN billing_planversion v ON v.id = c.version_id JOIN billing_plan p ON p.id = v.plan_id
            WHERE p.settles = 'wallet' AND r.verdict = 'charged'
        ) both_sides GROUP BY tenant_id, unit, share_den HAVING sum(kept) <> sum(rated)
        """,
    "wallet entries add up to zero": """
        SELECT format('booking %s on {wallet:%s}: %s', booking, min(wallet_id), sum(amount)) FROM billing_walletentry
        GROUP BY booking HAVING sum(amount) <> 0
        """,
    "wallets, grants and days stand as their entries": """
        SELECT format('{wallet:%s}: %s kept, %s entered', w.id, w.balance, coalesce(sum(e.amount), 0))
        FROM billing_wallet w LEFT JOIN billing_walletentry e ON e.wallet_id = w.id AND e.side = 'balance'
        GROUP BY w.id HAVING w.balance <> coalesce(sum(e.amount), 0)
        UNION ALL
        SELECT format('{grant:%s}: %s kept, %s entered', g.id, g.left, coalesce(sum(e.amount), 0))
        FROM billing_walletgrant g LEFT JOIN billing_walletentry e ON e.grant_id = g.id
            AND e.side = 'balance'
        GROUP BY g.id HAVING g.left <> coalesce(sum(e.amount), 0)
        UNION ALL
        SELECT format('{grant:%s}: %s expired, %s entered', g.id, g.expired, coalesce(sum(e.amount), 0))
        FROM billing_walletgrant g LEFT JOIN billing_walletentry e ON e.grant_id = g.id AND e.side = 'expired'
        GROUP BY g.id HAVING g.expired <> coalesce(sum(e.amount), 0)
        UNION ALL
        SELECT format('{wallet:%s} on %s: %s kept, %s entered',
                      d.wallet_id, d.day, d.booked, coalesce(sum(e.amount), 0))
        FROM billing_walletday d
        LEFT JOIN billing_walletentry e ON e.wallet_id = d.wallet_id AND e.day = d.day AND e.side = 'used'
        GROUP BY d.id HAVING d.booked <> coalesce(sum(e.amount), 0)
        UNION ALL
        SELECT format('{wallet:%s}: %s held, %s in holds', w.id, w.held, coalesce(sum(h.amount), 0))
        FROM billing_wallet w LEFT JOIN billing_wallethold h ON h.wallet_id = w.id AND h.released_at IS NULL
        GROUP BY w.id HAVING w.held <> coalesce(sum(h.amount), 0)
        """,
    "wallets paid on invoices what those say": """
        SELECT format('%s: %s said, %s entered', i.number, i.prepaid, coalesce(sum(e.amount), 0))
        FROM billing_invoice i LEFT JOIN billing_walletentry e ON e.invoice_id = i.id AND e.side = 'invoice'
        GROUP BY i.id
        HAVING coalesce(sum(e.amount), 0) <> CASE WHEN i.state = 'issued' THEN i.prepaid ELSE 0 END
        UNION ALL
        SELECT format('%s: its credit notes gave back more than its wallet paid', o.number)
        FROM billing_invoice o JOIN billing_invoice n ON n.original_id = o.id AND n.state = 'issued'
        GROUP BY o.id HAVING o.prepaid + sum(n.prepaid) < 0
        """,
    "no issued number is missing from its series": """
        SELECT s.name FROM billing_invoiceseries s
        LEFT JOIN billing_invoice i
            ON regexp_replace(i.number, '-[0-9]+$', '') = s.name AND i.state IN ('issued', 'void')
        GROUP BY s.id HAVING count(i.id) <> s.last_number
        UNION ALL
        SELECT i.number FROM billing_invoice i WHERE i.state IN ('issued', 'void') AND NOT EXISTS (
            SELECT 1 FROM billing_invoiceseries s WHERE regexp_replace(i.number, '-[0-9]+$', '') = s.name)
        """,
    "no credit note takes back more than its invoice had": """
        SELECT o.number FROM billing_invoice o JOIN billing_invoice c ON c.original_id = o.id AND c.state = 'issued'
        GROUP BY o.id HAVING o.state <> 'issued' OR o.total + sum(c.total) < 0 OR o.tax + sum(c.tax) < 0
        UNION ALL
        SELECT format('%s line %s', i.number, o.position) FROM billing_invoiceline o
        JOIN billing_invoice i ON i.id = o.invoice_id
        JOIN billing_invoiceline c ON c.original_id = o.id
        JOIN billing_invoice n ON n.id = c.invoice_id AND n.state = 'issued'
        GROUP BY i.number, o.id HAVING (o.amount + sum(c.amount)) * sign(o.amount) < 0
        """,
    "no more is written off than an invoice came to": """
        SELECT i.number FROM billing_writeoff w JOIN billing_invoice i ON i.id = w.invoice_id
        WHERE i.tenant_id <> w.tenant_id OR i.kind = 'credit-note' OR w.amount > i.total
        """,
    "the taxes of a document add up to its lines": """
        SELECT i.number FROM billing_invoice i LEFT JOIN (
            SELECT invoice_id, sum(net) AS net, sum(tax) AS tax FROM billing_invoicetax GROUP BY invoice_id
        ) t ON t.invoice_id = i.id
        WHERE i.state IN ('issued', 'void') AND (i.subtotal, i.tax) <> (coalesce(t.net, 0), coalesce(t.tax, 0))
        UNION ALL
        SELECT format('{invoice:%s} at %s %s', invoice_id, category, rate) FROM (
            SELECT invoice_id, category, rate, sum(net) AS net, sum(sum(net)) OVER (PARTITION BY invoice_id) AS whole
            FROM (
                SELECT invoice_id, tax_category AS category, tax_rate AS rate, amount AS net FROM billing_invoiceline
                UNION ALL SELECT invoice_id, category, rate, -net FROM billing_invoicetax
            ) both_sides GROUP BY invoice_id, category, rate
        ) each WHERE net <> 0 AND whole = 0
        """,
}
"""Identity → a query that returns one text per place where it is broken."""
