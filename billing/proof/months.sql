-- What is kept with the proofs of months, and which of them stand.

-- name: MARKS
-- The marks that this proof sees: it deletes those, and no other.
INSERT INTO prove_mark SELECT id, month FROM billing_proofmark

-- name: TERMS
-- By month a digest of who owned its accounts while its runs lasted, of what the plans of those charged then, and of which
-- tables were attached with its rows. Who has no run in it is not in it, nor what begins after its last run.
WITH part AS MATERIALIZED (
    SELECT i.inhparent = 'billing_ratedusage'::regclass AS rated, to_date(right(c.relname, 7), 'YYYY_MM') AS month, c.oid
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE c.relkind = 'r' AND i.inhparent = ANY (
        '{clusters_usagerecord, billing_ratedjob, billing_ratedusage}'::regclass[]::oid[])
)
SELECT month, concat_ws(' ', o.digest, (
    SELECT coalesce(sum(hashtextextended(concat_ws(' ', t.tenant_id, greatest(t.since, first), least(t.until, last),
                                                   coalesce(t.charges::text, 'none')), 0)::numeric), 0)
    FROM prove_time t WHERE t.since < last AND t.until > first AND t.tenant_id = ANY (o.tenants)
), (
    SELECT coalesce(sum(hashtextextended(p.oid::text, 0)::numeric), 0) FROM part p
    WHERE p.month = m.month OR p.rated AND p.month BETWEEN utc_month(first) AND utc_month(last)
))
FROM jsonb_to_recordset(%(months)s::jsonb) AS m (month date, first bigint, last bigint, accounts bigint[])
CROSS JOIN LATERAL (
    SELECT array_agg(DISTINCT tenant_id) AS tenants,
           coalesce(sum(hashtextextended(concat_ws(' ', account_id, tenant_id, greatest(since, first), least(until, last)), 0)
                        ::numeric), 0) AS digest
    FROM (
        SELECT x.account_id, x.tenant_id, coalesce(extract(epoch FROM x.since)::bigint, 0) AS since,
               coalesce(extract(epoch FROM x.until)::bigint, 9223372036854775807) AS until
        FROM unnest(m.accounts) AS a JOIN tenants_ownership x ON x.account_id = a
    ) owned WHERE since < last AND until > first
) o

-- name: HALF_COVERED
-- Months of which a sum is covered in part since it was computed: what of it is billed, its rows alone can say.
SELECT DISTINCT s.month FROM billing_monthsum s
LEFT JOIN prove_covered c ON c.period_id = s.period_id AND c.payer_id = coalesce(s.payer_id, s.tenant_id)
LEFT JOIN prove_wallet w ON w.price_id = s.price_id
LEFT JOIN billing_walletbooking b ON b.tenant_id = s.tenant_id
WHERE s.verdict = 'charged'
  AND s.oldest <= CASE WHEN w.price_id IS NULL THEN c.through ELSE b.rated_through END
  AND s.newest > CASE WHEN w.price_id IS NULL THEN c.through ELSE b.rated_through END

-- name: LOAD
INSERT INTO prove_sum
SELECT month, service_month, cluster_id, tenant_id, period_id, project_id, price_id, payer_id, resource, verdict, share_den,
       units, oldest, newest, rows, NULL, NULL
FROM billing_monthsum WHERE month = ANY (%(months)s::date[])

-- name: KEEP
DELETE FROM billing_monthsum WHERE month = ANY (%(months)s::date[]);
INSERT INTO billing_monthsum (month, service_month, cluster_id, tenant_id, period_id, project_id, price_id, payer_id,
    resource, verdict, share_den, units, oldest, newest, rows)
SELECT month, service_month, cluster_id, tenant_id, period_id, project_id, price_id, payer_id, resource, verdict, share_den,
       sum(units), min(oldest), max(newest), sum(rows)
FROM prove_sum WHERE month = ANY (%(months)s::date[])
GROUP BY month, service_month, cluster_id, tenant_id, period_id, project_id, price_id, payer_id, resource, verdict,
         share_den, covered, booked

-- name: FORGET_MARKS
-- Of the months that are proved all marks that were seen, of each other one is enough. This transaction marks anew.
SELECT set_config('app.proof_marks', '', true);
DELETE FROM billing_proofmark WHERE id IN (
    SELECT id FROM prove_mark WHERE month = ANY (%(months)s::date[])
    UNION ALL
    SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY month ORDER BY id) AS place FROM prove_mark) m WHERE place > 1
)

-- name: RATED_MONTHS
SELECT DISTINCT month_of_number(number) FROM (SELECT DISTINCT (record_id >> 40)::int AS number FROM billing_ratedusage) n

-- name: PERIODS
-- The billing periods that lie in these months at least in part. A tenant whose zone was changed can have two periods on
-- one day: what is kept of days is compared for both together. Days between periods belong to the one before.
INSERT INTO prove_period
WITH period AS (
    SELECT id, tenant_id, start, "end", (start AT TIME ZONE timezone)::date AS first_day,
           (("end" - interval '1 second') AT TIME ZONE timezone)::date AS last_day
    FROM billing_billingperiod
), after AS (
    SELECT *, first_day <= max(last_day) OVER (
        PARTITION BY tenant_id ORDER BY start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS on_same_day
    FROM period
), numbered AS (
    SELECT *, count(*) FILTER (WHERE on_same_day IS NOT TRUE) OVER (PARTITION BY tenant_id ORDER BY start) AS part FROM after
), together AS (
    SELECT tenant_id, part, min(start) AS start, max("end") AS "end", min(first_day) AS first_day
    FROM numbered GROUP BY tenant_id, part
), days AS (
    SELECT tenant_id, part, start, "end",
           CASE WHEN lag(first_day) OVER w IS NULL THEN '-infinity'::date ELSE first_day END AS first_day,
           coalesce(lead(first_day) OVER w, 'infinity'::date) AS end_day
    FROM together WINDOW w AS (PARTITION BY tenant_id ORDER BY part)
)
SELECT n.id, n.tenant_id, extract(epoch FROM n.start)::bigint, extract(epoch FROM n."end")::bigint, d.first_day, d.end_day
FROM numbered n JOIN days d USING (tenant_id, part)
WHERE EXISTS (
    SELECT FROM unnest(%(months)s::date[]) AS m
    WHERE d.start < (m + interval '1 month') AT TIME ZONE 'UTC' AND d."end" > m::timestamp AT TIME ZONE 'UTC'
       OR d.first_day < (m + interval '1 month')::date AND d.end_day > m);
ANALYZE prove_period

-- name: SERVICES
SELECT DISTINCT months_between(since, until - 1) FROM prove_period

-- name: KEPT_MONTHS
SELECT month FROM billing_monthproof UNION SELECT service_month FROM billing_monthsum
UNION SELECT DISTINCT date_trunc('month', "end" - interval '1 second')::date FROM billing_billingperiod

-- name: PERIODS_IN_FILES
-- Periods with jobs whose rows stand in files alone are no longer compared with rows: they were as the months were
-- dropped, and all months that share them had been sealed then. Those that share days go together.
DELETE FROM prove_period p WHERE EXISTS (
    SELECT FROM prove_period o
    WHERE o.tenant_id = p.tenant_id AND o.first_day = p.first_day AND o.end_day = p.end_day AND o.period_id IN (
        SELECT s.period_id FROM billing_monthsum s WHERE s.month IN (SELECT billing_dropped_months())
        UNION ALL SELECT unnest(s.unrated_periods) FROM billing_sealedmonth s WHERE s.dropped_at IS NOT NULL))
