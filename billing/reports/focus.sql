-- name: USE
-- What of a document's lines each user of each account used, by the UTC day on which their jobs began to count: in
-- columns as they are written. The parts of a line are rounded one after the other, so they add up to it.
WITH line AS (
    SELECT * FROM unnest(%(positions)s::int[], %(hour_prices)s::numeric[], %(amounts)s::bigint[])
        AS l (position, hour_price, amount)
), held AS (
    SELECT position, record_id, service_from, service_to, units::numeric * share_num / share_den AS seconds, moment
    FROM jobs_of_lines(
        %(tenant)s, %(positions)s::int[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
        %(after)s::bigint[], %(through)s, %(first_month)s::date, %(end)s::timestamptz)
), named AS (
    SELECT h.position, h.record_id, h.service_from, h.service_to, h.seconds, h.service_from / 86400 AS day,
           CASE WHEN b.record_id IS NULL THEN j.cluster ELSE b.cluster END AS cluster,
           CASE WHEN b.record_id IS NULL THEN j.account ELSE b.account END AS account,
           CASE WHEN b.record_id IS NULL THEN j."user" ELSE b."user" END AS "user",
           CASE WHEN b.record_id IS NULL THEN j.queue ELSE b.queue END AS queue,
           CASE WHEN b.record_id IS NULL THEN j.gpu_model ELSE b.gpu_model END AS gpu_model
    FROM held h
    LEFT JOIN jobs_as_billed(%(tenant)s, %(moments)s::bigint[]) b ON b.record_id = h.record_id AND b.moment = h.moment
    LEFT JOIN billing_ratedjob j ON j.tenant_id = %(tenant)s AND j.record_id = h.record_id
), part AS (
    SELECT position, day, coalesce(cluster, '') COLLATE "C" AS cluster, coalesce(account, '') COLLATE "C" AS account,
           coalesce("user", '') COLLATE "C" AS "user", coalesce(queue, '') COLLATE "C" AS queue,
           coalesce(gpu_model, '') COLLATE "C" AS gpu_model, min(service_from) AS service_from,
           max(service_to) AS service_to, sum(seconds) AS seconds, count(DISTINCT record_id) AS jobs
    FROM named GROUP BY 1, 2, 3, 4, 5, 6, 7
), summed AS (
    SELECT p.*, l.hour_price, l.amount,
           sum(seconds) OVER whole AS total, min(seconds) OVER whole AS least, max(seconds) OVER whole AS most,
           sum(seconds) OVER (PARTITION BY position ORDER BY day, cluster, account, "user", queue, gpu_model
                              ROWS UNBOUNDED PRECEDING) AS through
    FROM part p JOIN line l USING (position)
    WINDOW whole AS (PARTITION BY position)
), rate AS (
    -- Minor units per second: of the whole line; where it both takes back and charges, by the price.
    SELECT *, CASE WHEN total <> 0 AND (least >= 0 OR most <= 0) THEN amount / total
                   ELSE hour_price * %(minor)s / 3600 END AS rate
    FROM summed
), priced AS (
    SELECT *, (seconds / 3600)::numeric(40, 9) AS quantity FROM rate
)
SELECT position, to_char(to_timestamp(service_from) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       to_char(to_timestamp(service_to) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       cluster, account, "user", queue, gpu_model, jobs,
       (round(through * rate) - round((through - seconds) * rate))::bigint, quantity::text,
       trim_scale(quantity * hour_price)::text
FROM priced ORDER BY position, day, cluster, account, "user", queue, gpu_model
