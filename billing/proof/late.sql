-- Late records: those of dropped months that are in their tables.

-- name: MONTHS
SELECT DISTINCT month_of_number((record >> 40)::int) AS month FROM billing_late_records() AS record ORDER BY month

-- name: TAKE_OUT
-- What was rated of these records, out of the sums of their month: by the numbers of rated rows, as sums are apart by what
-- documents covered. A sum stays that has no row left: jobs of no usage may be in its period.
WITH part AS (
    SELECT s.id, sum(r.units::numeric * r.share_num) AS units, count(*) AS rows
    FROM billing_ratedusage r JOIN clusters_usagerecord u ON u.id = r.record_id
    JOIN billing_monthsum s
      ON s.month = %(month)s
     AND (s.service_month, s.cluster_id, s.tenant_id, s.period_id, s.project_id, s.resource, s.verdict, s.share_den)
       = (r.service_month, u.cluster_id, r.tenant_id, r.period_id, r.project_id, r.resource, r.verdict, r.share_den)
     AND s.price_id IS NOT DISTINCT FROM r.price_id AND s.payer_id IS NOT DISTINCT FROM r.payer_id
     AND r.id BETWEEN s.oldest AND s.newest
    WHERE r.record_id = ANY (%(records)s) GROUP BY s.id
)
UPDATE billing_monthsum s SET units = s.units - p.units, rows = s.rows - p.rows FROM part p
WHERE s.id = p.id AND s.rows >= p.rows RETURNING p.rows

-- name: COUNT
SELECT count(*) FROM billing_ratedusage WHERE record_id = ANY (%(records)s)

-- name: LOST
-- Of dropped months how many records came back from their files and are in no table. New ones have higher numbers.
SELECT s.month, f.rows - p.records - count(r.id) AS lost
FROM billing_sealedmonth s JOIN billing_sealedfile f ON f.month_id = s.id AND f.kind = 'records'
JOIN billing_monthproof p ON p.month = s.month
LEFT JOIN clusters_usagerecord r
  ON r.id >= month_number(extract(epoch FROM s.month::timestamp AT TIME ZONE 'UTC')::bigint)::bigint << 40
 AND r.id <= p.last_id
WHERE s.dropped_at IS NOT NULL
GROUP BY s.month, f.rows, p.records HAVING f.rows - p.records <> count(r.id) ORDER BY s.month
