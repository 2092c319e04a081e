-- What runs held and did not use, sorted by why.

-- name: WASTE
-- (part, key, model, currency, price, den, a, b, c) of a period; amounts are a ÷ den GPU-seconds and so on.
-- `held`: a is what was held. `covered`: a is what telemetry covered, b of it what devices worked, c what they did not in
-- hours in which they did nothing (below one per cent). `found`: the key is a kind, a is what could be given back. `jobs`: the key
-- is a kind, a counts its jobs. `job`: the key is a record and the model a kind, for the most expensive ones of `kinds`.
-- In a run, its peak is the number of devices that its busiest hour would have filled. `dear` and `less`: prices for which
-- a less powerful model has that unit price.
WITH piece AS MATERIALIZED (
    SELECT p.* FROM report_pieces(%(cluster)s, %(tenant)s, %(since)s, %(until)s) p WHERE p.gpu
), stretch AS NOT MATERIALIZED (
    SELECT p.record_id, p.verdict, p.currency, p.share_num, p.share_den, p.since, p.until, p.gpus, p.gpu_model, p.started,
           p.finish, p.suspended,
           CASE WHEN NOT %(by_use)s OR count(*) OVER same = 1 THEN p.price_id END AS price_id,
           CASE WHEN NOT %(by_use)s OR count(*) OVER same = 1 THEN p.unit_price END AS unit_price,
           CASE WHEN %(by_use)s THEN row_number() OVER (PARTITION BY p.record_id, p.since, p.until ORDER BY p.price_id)
                ELSE 1 END AS place,
           CASE WHEN %(by_use)s THEN min(p.verdict) OVER same = max(p.verdict) OVER same ELSE true END AS alike
    FROM piece p WINDOW same AS (PARTITION BY p.record_id, p.since, p.until)
), hour AS MATERIALIZED (
    SELECT s.record_id, s.currency, s.price_id, s.unit_price, s.share_num, s.share_den, s.gpus, s.gpu_model, h.hour,
           h.busy * s.gpus / h.covered AS devices, h.busy * 100 < h.covered AS idle, x.ends - x.begins AS part,
           CASE WHEN x.begins = 0 AND x.ends = h.covered THEN h.busy
                ELSE trunc(h.busy * x.ends / h.covered, 9) - trunc(h.busy * x.begins / h.covered, 9) END AS worked
    FROM stretch s CROSS JOIN LATERAL (
        SELECT * FROM clusters_utilisationhour v
        WHERE v.record_id = s.record_id AND v.hour < s.until AND v.hour > s.since - 3600
    ) h
    CROSS JOIN LATERAL covered_within(
        h.hour, h.covered, s.gpus, s.started, s.finish, s.suspended, s.since, s.until) x
    WHERE s.place = 1 AND s.alike AND h.covered > 0
), run AS NOT MATERIALIZED (
    SELECT *, max(hour) FILTER (WHERE NOT idle) OVER same AS last_worked,
           max(devices) FILTER (WHERE NOT idle) OVER same AS most
    FROM hour WINDOW same AS (PARTITION BY record_id)
), ending AS NOT MATERIALIZED (
    SELECT *, ceil(most) AS peak,
           sum(part) FILTER (WHERE idle AND hour > last_worked) OVER (PARTITION BY record_id) AS tail
    FROM run
), cheaper AS (
    SELECT * FROM unnest(%(dear)s::bigint[], %(less)s::numeric[]) AS c (price_id, unit_price)
), sorted AS NOT MATERIALIZED (
    SELECT h.record_id, h.currency, h.price_id, h.unit_price - CASE WHEN NOT h.idle AND h.peak >= h.gpus
                                                                   THEN c.unit_price ELSE 0 END AS saved,
           CASE WHEN NOT h.idle AND h.peak < h.gpus THEN h.share_den * h.gpus::bigint ELSE h.share_den END AS den,
           CASE WHEN h.idle THEN (h.part - h.worked) * h.share_num
                WHEN h.peak < h.gpus THEN h.part * h.share_num * (h.gpus - h.peak)
                ELSE h.part * h.share_num END AS units,
           CASE WHEN h.idle AND h.last_worked IS NULL THEN 'zero-use'
                WHEN h.idle AND h.hour > h.last_worked AND h.tail >= 7200 * h.gpus::bigint THEN 'idle-tail'
                WHEN h.idle THEN 'idle-between'
                WHEN h.peak < h.gpus THEN 'too-many-gpus'
                WHEN h.gpus = 1 AND h.share_num = h.share_den AND h.most <= %(small)s AND c.price_id IS NOT NULL
                     THEN 'too-large-model' END AS kind
    FROM ending h LEFT JOIN cheaper c ON c.price_id = h.price_id
), limited AS NOT MATERIALIZED (
    SELECT p.record_id, NULL::text AS currency, NULL::bigint AS price_id, NULL::numeric AS saved, p.share_den AS den,
           p.gpus::numeric * p.share_num * (u.time_limit - (u.ended - p.started)) AS units, 'time-limit' AS kind
    FROM (SELECT DISTINCT record_id, gpus, share_num, share_den, started FROM piece
          WHERE started IS NOT NULL AND finish <= %(until)s AND upper(state) IN ('COMPLETED', 'SUCCEEDED')) p
    JOIN LATERAL (
        SELECT v.time_limit, v.ended FROM clusters_usagerecord v WHERE v.id = p.record_id
    ) u ON u.ended IS NOT NULL AND u.time_limit >= 4 * (u.ended - p.started) AND u.time_limit - (u.ended - p.started) >= 3600
), found AS MATERIALIZED (
    SELECT record_id, currency, price_id, saved, den::bigint AS den, units, kind FROM sorted
    WHERE kind IS NOT NULL AND units > 0
    UNION ALL SELECT record_id, currency, price_id, saved, den, units, kind FROM limited
), ranked AS (
    SELECT kind, record_id, row_number() OVER (
        PARTITION BY kind ORDER BY coalesce(sum(units * saved / den), 0) DESC, sum(units / den) DESC, record_id) AS place
    FROM found WHERE kind = ANY (%(kinds)s) GROUP BY kind, record_id
)
SELECT 'held', NULL, gpu_model, currency, price_id, share_den::bigint, sum(held * share_num), NULL, NULL
FROM piece GROUP BY gpu_model, currency, price_id, share_den
UNION ALL
SELECT 'covered', NULL, gpu_model, currency, price_id, share_den, sum(part * share_num), sum(worked * share_num),
       sum((part - worked) * share_num) FILTER (WHERE idle)
FROM hour GROUP BY gpu_model, currency, price_id, share_den
UNION ALL
SELECT 'found', kind, NULL, currency, price_id, den, sum(units), NULL, NULL FROM found GROUP BY kind, currency, price_id, den
UNION ALL
SELECT 'jobs', kind, NULL, NULL, NULL, 1, count(DISTINCT record_id), NULL, NULL FROM found GROUP BY kind
UNION ALL
SELECT 'job', f.record_id::text, f.kind, f.currency, f.price_id, f.den, sum(f.units), NULL, NULL
FROM found f JOIN ranked k ON k.record_id = f.record_id AND k.kind = f.kind WHERE k.place <= %(jobs)s
GROUP BY f.record_id, f.kind, f.currency, f.price_id, f.den

-- name: CHEAPER
-- (price, unit price, models) for prices of a GPU model: of the same version and for the same usage, the next lower price
-- of another model. A tenant's own, or all.
SELECT c.id, x.unit_price, x.gpu_models
FROM billing_price c CROSS JOIN LATERAL (
    SELECT y.unit_price, y.gpu_models FROM billing_price y
    WHERE y.version_id = c.version_id AND y.resource = 'gpu' AND y.gpu_models <> '{}' AND y.unit_price < c.unit_price
      AND y.unit_price > 0 AND y.uses = '{}' AND y.meter = c.meter AND y.tenant_id IS NOT DISTINCT FROM c.tenant_id
      AND (y.clusters, y.queues, y.qoses, y.priority_classes, y.mig_profiles, y.states, y.hours)
        = (c.clusters, c.queues, c.qoses, c.priority_classes, c.mig_profiles, c.states, c.hours)
      AND NOT y.gpu_models && c.gpu_models
      AND y.valid_from < coalesce(c.valid_until, 'infinity') AND coalesce(y.valid_until, 'infinity') > c.valid_from
    ORDER BY y.unit_price DESC, y.id LIMIT 1
) x
WHERE c.resource = 'gpu' AND c.gpu_models <> '{}' AND c.uses = '{}'
  AND (%(tenant)s::bigint IS NULL OR c.version_id IN (
      SELECT v.id FROM billing_planversion v JOIN billing_subscription s ON s.plan_id = v.plan_id
      WHERE s.tenant_id = %(tenant)s))
