-- Whether a month may be sealed.

-- name: STATES
-- By month, of its records (after, last] and of the service in it: months of its jobs that are detached; that are dropped, of
-- jobs that stand in files; and that are dropped, of late records that used something in it; jobs that have not ended, billing
-- periods that are not closed, rated rows that are not billed, and when any of it was changed last. A record that is new has
-- the highest number.
SELECT m.month, s.*
FROM unnest(%(months)s::date[], %(afters)s::bigint[], %(lasts)s::bigint[]) AS m(month, after, last)
CROSS JOIN LATERAL (
    WITH part AS MATERIALIZED (
        SELECT s.period_id, s.rows, s.verdict = 'charged' AND s.newest <=
               CASE WHEN w.price_id IS NULL THEN c.through ELSE b.rated_through END AS billed, s.verdict
        FROM billing_monthsum s
        LEFT JOIN billing_coveredperiod c
          ON c.period_id = s.period_id AND c.payer_id = coalesce(s.payer_id, s.tenant_id)
        LEFT JOIN billing_walletprice w ON w.price_id = s.price_id
        LEFT JOIN billing_walletbooking b ON b.tenant_id = s.tenant_id
        WHERE s.service_month = m.month
    ), period AS MATERIALIZED (
        SELECT id, closed_at FROM billing_billingperiod WHERE id IN (SELECT period_id FROM part)
    ), jobs_month AS MATERIALIZED (
        SELECT (m.last >> 40)::int AS number
        UNION SELECT (record_id >> 40)::int FROM clusters_usagerevision WHERE superseded_month = m.month
    ), in_files AS MATERIALIZED (
        SELECT DISTINCT (v.record_id >> 40)::int AS number FROM clusters_usagerevision v
        WHERE v.superseded_month = m.month
          AND month_of_number((v.record_id >> 40)::int) IN (SELECT billing_dropped_months())
          AND NOT EXISTS (SELECT FROM clusters_usagerecord r WHERE r.id = v.record_id)
    ), late AS MATERIALIZED (
        SELECT DISTINCT (record >> 40)::int AS number FROM billing_late_records() AS record
        WHERE EXISTS (SELECT FROM billing_ratedusage u WHERE u.record_id = record AND u.service_month = m.month)
    )
    SELECT (SELECT string_agg(to_char(month_of_number(number), 'YYYY-MM'), ', ' ORDER BY number) FROM jobs_month
            WHERE EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
                          AND c.relname = 'billing_ratedjob_' || to_char(month_of_number(number), 'YYYY_MM'))),
           (SELECT string_agg(to_char(month_of_number(number), 'YYYY-MM'), ', ' ORDER BY number) FROM in_files),
           (SELECT string_agg(to_char(month_of_number(number), 'YYYY-MM'), ', ' ORDER BY number) FROM late),
           (SELECT count(*) FROM clusters_usagerecord r WHERE r.id > m.after AND r.id <= m.last AND r.ended IS NULL),
           (SELECT count(*) FROM period WHERE closed_at IS NULL),
           (SELECT count(*) FROM part WHERE verdict <> 'waived' AND billed IS NOT TRUE),
           greatest(
               (m.month + interval '1 month') AT TIME ZONE 'UTC',
               (SELECT max(closed_at) FROM period),
               (SELECT max(i.issued_on)::timestamp AT TIME ZONE 'UTC' FROM billing_invoiceline l
                JOIN billing_invoice i ON i.id = l.invoice_id WHERE l.service_period_id IN (SELECT id FROM period)),
               (SELECT max(v.superseded_at) FROM clusters_usagerevision v
                WHERE v.record_id > m.after AND v.record_id <= m.last),
               (SELECT r.last_seen FROM clusters_usagerecord r WHERE r.id > m.after AND r.id <= m.last
                ORDER BY r.id DESC LIMIT 1))
) s

-- name: CHANGED
-- Sealed months of which anything is other than it was: a record was superseded or is new, or rated rows of service in it are
-- more than were sealed. `moments`: the last change that was sealed; an import that began before the sealing may have
-- committed after it.
SELECT m.month
FROM unnest(%(months)s::date[], %(afters)s::bigint[], %(lasts)s::bigint[], %(moments)s::timestamptz[],
            %(records)s::bigint[], %(rated)s::bigint[]) AS m(month, after, last, moment, records, rated)
WHERE EXISTS (SELECT FROM clusters_usagerevision v
              WHERE v.record_id > m.after AND v.record_id <= m.last AND v.superseded_at > m.moment)
   OR (SELECT coalesce(sum(s.rows), 0) FROM billing_monthsum s WHERE s.service_month = m.month) <> m.rated
   OR (SELECT p.records FROM billing_monthproof p WHERE p.month = m.month) <> m.records

-- name: LEDGER
-- By tenant what is rated of service in a month, as it is kept with the proofs of months.
SELECT s.tenant_id, s.project_id, s.period_id, s.price_id, s.payer_id, s.resource, s.verdict, s.share_den, sum(s.units),
       sum(s.rows)
FROM billing_monthsum s WHERE s.service_month = %(month)s
GROUP BY s.tenant_id, s.project_id, s.period_id, s.price_id, s.payer_id, s.resource, s.verdict, s.share_den

-- name: UNCHANGED_PERIODS
-- Billing periods with service in a month of which nothing was rated since their invoices were issued. Late records are not
-- in these sums.
SELECT p.period_id FROM (
    SELECT s.period_id, max(s.newest) AS newest FROM billing_monthsum s
    WHERE s.period_id IN (SELECT m.period_id FROM billing_monthsum m WHERE m.service_month = %(month)s)
    GROUP BY s.period_id
) p
WHERE p.newest <= (SELECT min(i.rated_through) FROM billing_invoice i WHERE i.period_id = p.period_id AND i.state = 'issued')
  AND p.period_id NOT IN (
      SELECT u.period_id FROM billing_ratedusage u WHERE u.record_id IN (SELECT billing_late_records()))

-- name: UNRATED_PERIODS
-- Billing periods in which jobs (after, last] of a month ran without rated usage, as one does that waited into it and never
-- ran: no sum says them. Those that its runs reached are looked at.
SELECT array_agg(DISTINCT p.id ORDER BY p.id)
FROM billing_billingperiod p
JOIN billing_monthproof m ON m.month = %(month)s
 AND p."end" > to_timestamp(m.first_second) AND p.start <= to_timestamp(m.last_second)
JOIN billing_ratedjob j ON j.tenant_id = p.tenant_id AND j.record_id > %(after)s AND j.record_id <= %(last)s
 AND p."end" > to_timestamp(j.started)
 AND p.start <= to_timestamp(greatest(coalesce(j.ended, j.seen_until, j.started) - 1, j.started))
WHERE p.id NOT IN (SELECT s.period_id FROM billing_monthsum s WHERE s.month = %(month)s)

-- name: KEEPS
-- What keeps a sealed month from being dropped: months before, or after, whose jobs used something in it and whose rows are
-- in their tables, as rating them again would look for that; months that are not sealed and share a billing period with it,
-- as what is kept of the jobs of such a period is proved by the rows of all of them; whether a document of such a period is
-- still to come; whether a price of its usage has an allowance, which is used in order of time, row by row; and months of
-- late records that used something in it, whose rows would not stay together.
SELECT (SELECT string_agg(to_char(month, 'YYYY-MM'), ', ' ORDER BY month) FROM (
            SELECT DISTINCT s.month FROM billing_monthsum s WHERE s.service_month = %(month)s AND s.month <> %(month)s
        ) e WHERE NOT EXISTS (SELECT FROM billing_sealedmonth d WHERE d.month = e.month AND d.dropped_at IS NOT NULL)),
       (SELECT string_agg(to_char(month, 'YYYY-MM'), ', ' ORDER BY month) FROM (
            SELECT DISTINCT o.month FROM billing_monthsum o
            WHERE o.period_id IN (SELECT s.period_id FROM billing_monthsum s WHERE s.month = %(month)s)
        ) n WHERE NOT EXISTS (SELECT FROM billing_sealedmonth d WHERE d.month = n.month)),
       EXISTS (SELECT FROM billing_monthsum s JOIN billing_billingperiod p ON p.id = s.period_id
               WHERE s.month = %(month)s AND p.closed_at IS NULL)
       OR EXISTS (SELECT FROM billing_periodtotal t
                  LEFT JOIN billing_coveredperiod c
                    ON c.period_id = t.period_id AND c.payer_id = coalesce(t.payer_id, t.tenant_id)
                  WHERE t.period_id IN (SELECT s.period_id FROM billing_monthsum s WHERE s.month = %(month)s)
                    AND t.verdict = 'charged' AND t.last_rated_id > coalesce(c.through, 0)
                    AND t.price_id NOT IN (SELECT price_id FROM billing_walletprice)),
       EXISTS (SELECT FROM billing_monthsum s JOIN billing_price c ON c.id = s.price_id
               WHERE s.month = %(month)s AND c.allowance_id IS NOT NULL),
       (SELECT string_agg(DISTINCT to_char(month_of_number((record >> 40)::int), 'YYYY-MM'), ', ')
        FROM billing_late_records() AS record
        WHERE EXISTS (SELECT FROM billing_ratedusage u WHERE u.record_id = record AND u.service_month = %(month)s))
