-- What models that are billed by tokens earned, and the GPUs of the jobs that served them.

-- name: TOKENS
-- (dimensions, tokens of the meter's unit, currency, Σ units, Σ units × unit price) of days, of tenants.
SELECT s.gpu_model, s.share_den, g.currency, sum(d.units), sum(d.units * g.unit_price)
FROM tenants_tenant t
CROSS JOIN LATERAL (
    SELECT series_id, sum(units) AS units FROM billing_dailyusage
    WHERE tenant_id = t.id AND day >= %(first_day)s AND day < %(end)s GROUP BY series_id OFFSET 0
) d
JOIN billing_usageseries s ON s.id = d.series_id
LEFT JOIN billing_pricetag g ON g.price_id = s.price_id
WHERE d.units <> 0 AND s.resource = ANY (%(meters)s)
GROUP BY s.gpu_model, s.share_den, g.currency

-- name: SERVED
-- (model, cluster, GPU model, UTC day since 1970, share_den, GPUs × share_num × seconds) of jobs that served a model. A job
-- that is named counts for its own model, the others of its account for the account's.
WITH place AS (
    SELECT * FROM unnest(%(models)s::text[], %(clusters)s::text[], %(accounts)s::text[], %(names)s::text[])
        AS p (model, cluster, account, name)
), run AS (
    SELECT DISTINCT ON (u.record_id) p.model, u.*
    FROM place p JOIN clusters_run u
      ON u.cluster = p.cluster AND u.account = p.account AND (p.name = '' OR u.name = p.name)
    WHERE u.gpus > 0 AND u.started < %(until)s AND u.finish > %(since)s
    ORDER BY u.record_id, p.name DESC
)
SELECT r.model, r.cluster, r.gpu_model, d.day, r.share_den, sum(r.gpus::numeric * r.share_num * held_seconds(
    greatest(d.day * 86400, %(since)s::bigint), least((d.day + 1) * 86400, %(until)s::bigint),
    r.started, r.finish, r.suspended))
FROM run r CROSS JOIN LATERAL generate_series(
    greatest(r.started, %(since)s::bigint) / 86400, (least(r.finish, %(until)s::bigint) - 1) / 86400) AS d (day)
GROUP BY r.model, r.cluster, r.gpu_model, d.day, r.share_den
