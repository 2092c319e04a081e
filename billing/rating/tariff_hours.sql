-- Cutting usage where prices for hours of the week begin and end.
--
-- A calendar is what one version of a plan and its clocks make of a stretch of time: slices, in each of which the same
-- prices are open. So a batch has a slice per border and calendar, however many accounts and jobs share it, and a record
-- meets those it runs through. Neighboring slices that cost the same are one cut again (`rate_usage.CUTS_IN_HOURS`).

-- name: PRICES
SELECT version_id, id, tenant_id, hours::text FROM billing_price
WHERE hours <> '{}' AND version_id IN (SELECT version_id FROM rate_span) ORDER BY id

-- name: SPANS
SELECT version_id, tenant_id, timezone, account_id, min(since), max(until) FROM rate_span
WHERE version_id = ANY (%(versions)s) GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4

-- name: NUMBER
UPDATE rate_span s SET calendar_id = k.calendar_id
FROM unnest(%(versions)s::bigint[], %(tenants)s::bigint[], %(zones)s::text[], %(accounts)s::bigint[],
            %(calendars)s::int[]) AS k (version_id, tenant_id, timezone, account_id, calendar_id)
WHERE (s.version_id, s.tenant_id, s.timezone, s.account_id) = (k.version_id, k.tenant_id, k.timezone, k.account_id)

-- name: COPY_OPEN
COPY rate_open (calendar_id, open_id, open) FROM STDIN

-- name: COPY_SLICES
COPY rate_slice (calendar_id, since, until, open_id) FROM STDIN

-- name: ANALYZE_SLICES
ANALYZE rate_slice (calendar_id, since); ANALYZE rate_span
