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

-- name: NOTED
-- Dropped months that have late records, or had: of those some are gone.
SELECT DISTINCT month_of_number((record_id >> 40)::int) AS month FROM billing_laterecord ORDER BY month

-- name: LOST
-- Of these months late records that are in no table any more, ten of each.
SELECT month, source_key, cluster_id FROM (
    SELECT m.month, l.source_key, l.cluster_id, row_number() OVER (PARTITION BY m.month ORDER BY l.record_id) AS place
    FROM billing_laterecord l
    CROSS JOIN LATERAL month_of_number((l.record_id >> 40)::int) AS m (month)
    WHERE m.month = ANY (%(months)s::date[])
      AND NOT EXISTS (SELECT FROM clusters_usagerecord r WHERE r.id = l.record_id)
) lost WHERE place <= 10 ORDER BY month, place
