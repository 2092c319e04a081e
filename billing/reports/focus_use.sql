-- name: USE
-- What of documents' lines each user of each account used, by the UTC day on which their jobs began to count: in columns
-- as they are written. The parts of a line are rounded one after the other, so they add up to it. `held` is what
-- jobs_of_lines says of one document, here of the lines of several: the months are read once for all of them. Its `one` is
-- always 1, and the planner expects a thousand of them: else it expects a single job, and would compare all with all.
WITH line AS MATERIALIZED (
    SELECT * FROM unnest(
        %(numbers)s::int[], %(tenants)s::bigint[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
        %(afters)s::bigint[], %(throughs)s::bigint[], %(hour_prices)s::numeric[], %(amounts)s::bigint[], %(minors)s::int[])
        AS l (number, tenant_id, period_id, project_id, price_id, after, through, hour_price, amount, minor)
), held AS (
    SELECT l.number, l.tenant_id, r.record_id, min(r.service_from) AS service_from, max(r.service_to) AS service_to,
           sum(r.units)::numeric * r.share_num / r.share_den AS seconds,
           CASE WHEN sum(r.units) < 0 THEN l.after ELSE l.through END AS moment,
           generate_series(1, least(1, count(*))) AS one
    FROM line l
    JOIN billing_ratedusage r ON r.period_id = l.period_id AND r.project_id = l.project_id AND r.price_id = l.price_id
                             AND r.tenant_id = l.tenant_id AND r.id > l.after AND r.id <= l.through
    WHERE r.tenant_id = ANY (%(all_tenants)s::bigint[]) AND r.payer_id IS NULL AND r.id <= %(newest)s
      AND r.service_month >= %(first_month)s::date AND r.service_month < %(end)s::timestamptz AT TIME ZONE 'UTC'
    GROUP BY l.number, l.tenant_id, l.after, l.through, r.record_id, r.share_num, r.share_den
    HAVING sum(r.units) <> 0
), billed AS MATERIALIZED (
    SELECT c.tenant_id, b.*
    FROM unnest(%(changed_tenants)s::bigint[], %(moments)s::bigint[]) AS c (tenant_id, of_moment)
    CROSS JOIN LATERAL jobs_as_billed(c.tenant_id, ARRAY[c.of_moment]) b
), named AS (
    SELECT h.number, h.record_id, h.service_from, h.service_to, h.seconds, h.service_from / 86400 AS day,
           CASE WHEN b.record_id IS NULL THEN j.cluster ELSE b.cluster END AS cluster,
           CASE WHEN b.record_id IS NULL THEN j.account ELSE b.account END AS account,
           CASE WHEN b.record_id IS NULL THEN j."user" ELSE b."user" END AS "user",
           CASE WHEN b.record_id IS NULL THEN j.queue ELSE b.queue END AS queue,
           CASE WHEN b.record_id IS NULL THEN j.gpu_model ELSE b.gpu_model END AS gpu_model
    FROM held h
    LEFT JOIN billed b ON b.tenant_id = h.tenant_id AND b.record_id = h.record_id AND b.moment = h.moment
    LEFT JOIN billing_ratedjob j ON j.tenant_id = h.tenant_id AND j.record_id = h.record_id
), part AS (
    SELECT number, day, coalesce(cluster, '') COLLATE "C" AS cluster, coalesce(account, '') COLLATE "C" AS account,
           coalesce("user", '') COLLATE "C" AS "user", coalesce(queue, '') COLLATE "C" AS queue,
           coalesce(gpu_model, '') COLLATE "C" AS gpu_model, min(service_from) AS service_from,
           max(service_to) AS service_to, sum(seconds) AS seconds, count(DISTINCT record_id) AS jobs
    FROM named GROUP BY 1, 2, 3, 4, 5, 6, 7
), summed AS (
    SELECT p.*, l.hour_price, l.amount, l.minor,
           sum(seconds) OVER whole AS total, min(seconds) OVER whole AS least, max(seconds) OVER whole AS most,
           sum(seconds) OVER (PARTITION BY number ORDER BY day, cluster, account, "user", queue, gpu_model
                              ROWS UNBOUNDED PRECEDING) AS through
    FROM part p JOIN line l USING (number)
    WINDOW whole AS (PARTITION BY number)
), rate AS (
    -- Minor units per second: of the whole line; where it both takes back and charges, by the price.
    SELECT *, CASE WHEN total <> 0 AND (least >= 0 OR most <= 0) THEN amount / total
                   ELSE hour_price * minor / 3600 END AS rate
    FROM summed
), priced AS (
    SELECT *, (seconds / 3600)::numeric(40, 9) AS quantity FROM rate
)
SELECT number, to_char(to_timestamp(service_from) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       to_char(to_timestamp(service_to) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       cluster, account, "user", queue, gpu_model, jobs,
       (round(through * rate) - round((through - seconds) * rate))::bigint, quantity::text,
       trim_scale(quantity * hour_price)::text
FROM priced ORDER BY number, day, cluster, account, "user", queue, gpu_model
