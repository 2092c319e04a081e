-- name: COPY_BILL
COPY bill_stage (provider, account, period, currency, digest, since, until, amount) FROM STDIN

-- name: ANALYZE_BILL
ANALYZE bill_stage

-- name: NUMBER_ROWS
-- Two equal rows are two charges, as a bill has them.
INSERT INTO bill_row (provider, account, period, currency, charge, since, until, amount)
SELECT provider, account, period, currency, digest || '/' || row_number() OVER (PARTITION BY provider, period, digest),
       since, until, amount
FROM bill_stage

-- name: ANALYZE_ROWS
ANALYZE bill_row

-- name: GROUPS
-- By bill: its currencies, what it comes to, how many of its charges are new and the same, and how many another import has
-- counted already, with one such cluster.
SELECT r.provider, r.account, r.period, array_agg(DISTINCT r.currency), sum(r.amount), count(*),
       count(*) FILTER (WHERE c.id IS NULL), count(*) FILTER (WHERE (s.cluster_id, s.gpu_model, s.selection) =
                                                              (%(cluster)s, %(gpu_model)s, %(selection)s)),
       min(k.name || CASE WHEN s.gpu_model = '' THEN '' ELSE ', ' || s.gpu_model END)
           FILTER (WHERE (s.cluster_id, s.gpu_model, s.selection) <> (%(cluster)s, %(gpu_model)s, %(selection)s))
FROM bill_row r
LEFT JOIN billing_costcharge c ON c.provider = r.provider AND c.billing_period = r.period AND c.charge = r.charge
LEFT JOIN billing_costimport s ON s.id = c.source_id
LEFT JOIN clusters_cluster k ON k.id = s.cluster_id
GROUP BY r.provider, r.account, r.period ORDER BY r.period, r.provider, r.account

-- name: DROP_CHARGES
-- What an earlier delivery of the same bill said, and this one does not say any more.
DELETE FROM billing_costcharge c
WHERE c.source_id = %(source)s
  AND NOT EXISTS (SELECT FROM bill_row r WHERE r.provider = c.provider AND r.period = c.billing_period
                  AND r.charge = c.charge AND r.account = %(account)s)

-- name: ADD_CHARGES
INSERT INTO billing_costcharge (source_id, provider, billing_period, charge, since, until, amount)
SELECT %(source)s, r.provider, r.period, r.charge, r.since, r.until, r.amount FROM bill_row r
WHERE r.provider = %(provider)s AND r.account = %(account)s AND r.period = %(period)s::date
  AND NOT EXISTS (SELECT FROM billing_costcharge c WHERE c.provider = r.provider AND c.billing_period = r.period
                  AND c.charge = r.charge)

-- name: CHARGES
-- What lies in [since, until): by cluster, model, currency and time. Hours of a month are few, whatever the bill's rows.
SELECT k.name, s.gpu_model, s.provider, s.currency, c.since, c.until, sum(c.amount)
FROM billing_costcharge c
JOIN billing_costimport s ON s.id = c.source_id
JOIN clusters_cluster k ON k.id = s.cluster_id
WHERE c.since < %(until)s AND c.until > %(since)s AND (%(cluster)s::bigint IS NULL OR s.cluster_id = %(cluster)s)
GROUP BY k.name, s.gpu_model, s.provider, s.currency, c.since, c.until
ORDER BY k.name, s.gpu_model, c.since, c.until, s.provider

-- name: BILLED
-- From when to when each cluster, or a model of it, has its costs by bills: from the period's first day to the end of the
-- last charge, at most up to the moment of the import.
SELECT k.name, s.gpu_model, extract(epoch FROM s.billing_period)::bigint AS since,
       least(max(c.until), extract(epoch FROM s.imported_at)::bigint) AS until
FROM billing_costimport s
JOIN billing_costcharge c ON c.source_id = s.id
JOIN clusters_cluster k ON k.id = s.cluster_id
WHERE %(cluster)s::bigint IS NULL OR s.cluster_id = %(cluster)s
GROUP BY k.name, s.gpu_model, s.id, s.billing_period, s.imported_at
ORDER BY 1, 2, 3
