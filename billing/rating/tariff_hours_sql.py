"""The statements by which `rating` cuts usage where prices for hours of the week begin and end.

A calendar is what one version of a plan and its clocks make of a stretch of time: slices, in each of which the same
prices are open. So a batch has a slice per border and calendar, however many accounts and jobs share it, and a record
meets those it runs through. Neighbouring slices that cost the same are one cut again.
"""

from __future__ import annotations

from billing.rating.resources_sql import amount
from billing.rules.hours import LONGEST

PREPARE = """
CREATE TEMP TABLE IF NOT EXISTS rate_open (
    calendar_id int NOT NULL, open_id int NOT NULL, open bigint[] NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_slice (
    calendar_id int NOT NULL, since bigint NOT NULL, until bigint NOT NULL, open_id int NOT NULL
) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS rate_slice_since ON rate_slice (calendar_id, since);
"""
TABLES = ("rate_open", "rate_slice")

PRICES = """
SELECT version_id, id, tenant_id, hours::text FROM billing_price
WHERE hours <> '{}' AND version_id IN (SELECT version_id FROM rate_span) ORDER BY id
"""

SPANS = """
SELECT version_id, tenant_id, timezone, account_id, min(since), max(until) FROM rate_span
WHERE version_id = ANY (%s) GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
"""

NUMBER = """
UPDATE rate_span s SET calendar_id = k.calendar_id
FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::int[])
     AS k (version_id, tenant_id, timezone, account_id, calendar_id)
WHERE (s.version_id, s.tenant_id, s.timezone, s.account_id) = (k.version_id, k.tenant_id, k.timezone, k.account_id)
"""

COPY_OPEN = "COPY rate_open (calendar_id, open_id, open) FROM STDIN"
COPY_SLICES = "COPY rate_slice (calendar_id, since, until, open_id) FROM STDIN"

ANALYZE = "ANALYZE rate_slice (calendar_id, since); ANALYZE rate_span"

# Pieces of records, each as long as its terms hold within a span. `only` is a condition on offers.
PIECES = f"""
    SELECT record_id, min(offer_id) AS offer_id, min(since) AS since, max(until) AS until FROM (
        SELECT *, sum(begins) OVER (PARTITION BY record_id, span_id, resource, use ORDER BY since) AS island FROM (
            SELECT u.record_id, s.span_id, o.resource, o.use, o.offer_id, greatest(h.since, s.since) AS since,
                   least(h.until, s.until) AS until,
                   (lag(o.terms_id) OVER (PARTITION BY u.record_id, s.span_id, o.resource, o.use ORDER BY h.since)
                    IS DISTINCT FROM o.terms_id)::int AS begins
            FROM usage_input u JOIN rate_span s
              ON s.account_id = u.account_id AND s.since < u.finish AND s.until > u.started
             AND s.calendar_id IS NOT NULL
            CROSS JOIN LATERAL (
                SELECT * FROM rate_slice l
                WHERE l.calendar_id = s.calendar_id AND l.since < least(u.finish, s.until)
                  AND l.since > greatest(u.started, s.since) - {LONGEST}
                  AND l.until > greatest(u.started, s.since) OFFSET 0
            ) h JOIN rate_offer o ON o.span_id = s.span_id AND o.open_id = h.open_id{{shape}}{{only}}
            WHERE {amount("o.resource")} > 0
        ) slice
    ) step GROUP BY record_id, span_id, resource, use, island"""
