"""The statements of `proof`. Each sums from the rows themselves, never from what it is to prove."""

from __future__ import annotations

from clusters.usage import ACTIVE

# Up to which rated row each billing period is covered by issued invoices.
_COVERED = """
covered AS (
    SELECT p.id AS period_id, max(i.rated_through) AS through
    FROM billing_billingperiod p
    JOIN billing_invoice i ON i.tenant_id = p.tenant_id AND i.state = 'issued' AND i.period_end >= p."end"
    GROUP BY p.id
)
"""


def _held(since: str, until: str) -> str:
    return ACTIVE.format(
        since=since, until=until, started="u.started", finish="u.finish", suspended="u.suspended"
    )


_AMOUNT = (
    "CASE r.resource WHEN 'gpu' THEN u.gpus * u.share_num WHEN 'cpu' THEN u.cpu_milli ELSE u.memory_mib END"
    "::numeric"
)
_DEN = "CASE r.resource WHEN 'gpu' THEN u.share_den WHEN 'cpu' THEN 1000 ELSE 1024 END"

# Over the records of `usage_input`: (cluster, resource, part, numerator, denominator) in resource-seconds.
SUMS = f"""
WITH bounds AS (
    SELECT coalesce(extract(epoch FROM %(month)s::date::timestamp AT TIME ZONE 'UTC')::bigint, 0) AS lo,
           coalesce(extract(epoch FROM (%(month)s::date + interval '1 month') AT TIME ZONE 'UTC')::bigint,
                    9223372036854775807) AS hi
), resource AS (
    SELECT unnest(ARRAY['gpu', 'cpu', 'memory']) AS resource
), {_COVERED.strip()}, held AS (
    SELECT u.*, b.lo, b.hi FROM usage_input u CROSS JOIN bounds b
    WHERE u.started < b.hi AND u.finish > b.lo
), owned AS (
    SELECT u.*, greatest(coalesce(extract(epoch FROM o.since)::bigint, 0), u.lo) AS since,
           least(coalesce(extract(epoch FROM o.until)::bigint, 9223372036854775807), u.hi) AS until
    FROM held u JOIN tenants_ownership o ON o.account_id = u.account_id
)
SELECT u.cluster, r.resource, 'allocated', sum({_AMOUNT} * {_held("u.lo", "u.hi")}), {_DEN} AS den
FROM held u CROSS JOIN resource r GROUP BY u.cluster, r.resource, den
UNION ALL
SELECT cluster, resource, 'unowned', sum(num), den FROM (
    SELECT u.cluster, r.resource, {_AMOUNT} * {_held("u.lo", "u.hi")} AS num, {_DEN} AS den
    FROM held u CROSS JOIN resource r
    UNION ALL
    SELECT u.cluster, r.resource, -{_AMOUNT} * {_held("u.since", "u.until")}, {_DEN}
    FROM owned u CROSS JOIN resource r WHERE u.since < u.finish AND u.until > u.started AND u.since < u.until
) gap GROUP BY cluster, resource, den
UNION ALL
SELECT u.cluster, r.resource,
       CASE WHEN r.verdict = 'charged' AND r.id <= c.through THEN 'billed'
            WHEN r.verdict = 'charged' THEN 'pending' ELSE r.verdict END AS part,
       sum(r.units::numeric * r.share_num), r.share_den
FROM usage_input u JOIN billing_ratedusage r ON r.record_id = u.record_id
LEFT JOIN covered c ON c.period_id = r.period_id
WHERE %(month)s::date IS NULL OR r.service_month = %(month)s::date
GROUP BY u.cluster, r.resource, part, r.share_den
"""  # noqa: S608 - built from constants

# Over the records of `usage_input`: where what a tenant's ownership held of a job is not what stands rated for it,
# and how many rated rows the records have. Neither a wrong job that another makes up for, nor usage rated for
# somebody who no longer owns it, shows in the sums of a cluster.
JOBS = f"""
WITH resource AS (
    SELECT unnest(ARRAY['gpu', 'cpu', 'memory']) AS resource
), owned AS (
    SELECT u.*, o.tenant_id, coalesce(extract(epoch FROM o.since)::bigint, 0) AS since,
           coalesce(extract(epoch FROM o.until)::bigint, 9223372036854775807) AS until
    FROM usage_input u JOIN tenants_ownership o ON o.account_id = u.account_id WHERE u.started IS NOT NULL
), job AS (
    SELECT u.record_id, u.tenant_id, r.resource,
           CASE r.resource WHEN 'gpu' THEN u.gpus WHEN 'cpu' THEN u.cpu_milli ELSE u.memory_mib END::numeric
               * {_held("u.since", "u.until")} AS held, 0::numeric AS rated
    FROM owned u CROSS JOIN resource r WHERE u.since < u.finish AND u.until > u.started
    UNION ALL
    SELECT r.record_id, r.tenant_id, r.resource, 0, r.units
    FROM usage_input u JOIN billing_ratedusage r ON r.record_id = u.record_id
)
SELECT format('job record %s, tenant %s, %s: %s held, %s rated', record_id, tenant_id, resource, sum(held), sum(rated))
FROM job GROUP BY record_id, tenant_id, resource HAVING sum(held) <> sum(rated) LIMIT 10
"""  # noqa: S608 - built from constants

RATED_ROWS = "SELECT count(*) FROM usage_input u JOIN billing_ratedusage r ON r.record_id = u.record_id"
ALL_RATED_ROWS = "SELECT count(*) FROM billing_ratedusage"

# What lines hold (positive) and what they cover (negative), per line key; sums to nothing where both agree.
LINES = f"""
WITH {_COVERED.strip()}
SELECT l.service_period_id, l.project_id, l.price_id, l.seconds_num, l.seconds_den
FROM billing_invoiceline l JOIN billing_invoice i ON i.id = l.invoice_id WHERE i.state = 'issued'
UNION ALL
SELECT r.period_id, r.project_id, r.price_id, -sum(r.units::numeric * r.share_num), r.share_den
FROM billing_ratedusage r JOIN covered c ON c.period_id = r.period_id AND r.id <= c.through
WHERE r.verdict = 'charged' GROUP BY r.period_id, r.project_id, r.price_id, r.share_den
"""  # noqa: S608 - built from constants

CHECKS = {
    "period totals equal rated usage": """
        SELECT format('period %s, project %s, %s %s: %s kept, %s rated', period_id, project_id, resource, verdict,
                      sum(kept), sum(rated))
        FROM (
            SELECT period_id, project_id, resource, verdict, price_id, share_den, units AS kept, 0 AS rated
            FROM billing_periodtotal
            UNION ALL
            SELECT period_id, project_id, resource, verdict, price_id, share_den, 0, units::numeric * share_num
            FROM billing_ratedusage
        ) both_sides
        GROUP BY period_id, project_id, resource, verdict, price_id, share_den HAVING sum(kept) <> sum(rated)
        """,
    "day totals equal rated usage": """
        SELECT format('tenant %s, %s: %s kept, %s rated', tenant_id, resource, sum(kept), sum(rated)) FROM (
            SELECT tenant_id, resource, share_den, units AS kept, 0 AS rated FROM billing_daytotal
            UNION ALL
            SELECT tenant_id, resource, share_den, 0, units::numeric * share_num FROM billing_ratedusage
            WHERE resource = 'gpu' OR verdict = 'charged'
        ) both_sides GROUP BY tenant_id, resource, share_den HAVING sum(kept) <> sum(rated)
        """,
    "user totals equal rated usage": """
        SELECT format('period %s, %s: %s kept, %s rated', period_id, resource, sum(kept), sum(rated)) FROM (
            SELECT period_id, resource, share_den, units AS kept, 0 AS rated FROM billing_usertotal
            UNION ALL
            SELECT period_id, resource, share_den, 0, units::numeric * share_num FROM billing_ratedusage
            WHERE resource = 'gpu' OR verdict = 'charged'
        ) both_sides GROUP BY period_id, resource, share_den HAVING sum(kept) <> sum(rated)
        """,
    "totals cost what their units cost": """
        SELECT format('period %s, project %s, price %s: %s kept', t.period_id, t.project_id, t.price_id, t.amount)
        FROM billing_periodtotal t LEFT JOIN billing_price p ON p.id = t.price_id
        WHERE t.amount <> coalesce(t.units * p.unit_price, 0)
        UNION ALL
        SELECT format('tenant %s, %s: days keep %s, periods %s', tenant_id, resource, sum(days), sum(periods)) FROM (
            SELECT tenant_id, resource, share_den, amount AS days, 0 AS periods FROM billing_daytotal
            UNION ALL SELECT tenant_id, resource, share_den, 0, amount FROM billing_periodtotal
        ) both_sides GROUP BY tenant_id, resource, share_den HAVING sum(days) <> sum(periods)
        """,
    "every job has its tenant and project": """
        SELECT format('job record %s, tenant %s, project %s', j.record_id, j.tenant_id, j.project_id)
        FROM billing_ratedjob j LEFT JOIN tenants_project p ON p.id = j.project_id AND p.tenant_id = j.tenant_id
        WHERE p.id IS NULL
        """,
    "invoice lines add up to their subtotal": """
        SELECT i.number FROM billing_invoice i LEFT JOIN billing_invoiceline l ON l.invoice_id = i.id
        WHERE i.state = 'issued' GROUP BY i.id HAVING i.subtotal <> coalesce(sum(l.amount), 0)
        """,
    "no issued number is missing from its series": """
        SELECT s.name FROM billing_invoiceseries s
        LEFT JOIN billing_invoice i ON starts_with(i.number, s.name || '-') AND i.state IN ('issued', 'void')
        GROUP BY s.id HAVING count(i.id) <> s.last_number
        UNION ALL
        SELECT i.number FROM billing_invoice i WHERE i.state IN ('issued', 'void') AND NOT EXISTS (
            SELECT 1 FROM billing_invoiceseries s WHERE starts_with(i.number, s.name || '-'))
        """,
}
"""Identity → a query that returns one text per place where it is broken."""
