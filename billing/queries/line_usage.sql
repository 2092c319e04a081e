-- The jobs behind the lines of an invoice, each with what it adds to its line: rated rows since the invoice before. What is
-- taken back is described as it was billed, what is charged as this document covers it.

-- name: COUNTS
WITH line AS (
    SELECT * FROM unnest(%(positions)s::int[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
                         %(after)s::bigint[]) AS l (position, period_id, project_id, price_id, after)
), held AS (
    SELECT l.position, r.record_id, r.share_num, r.share_den, min(r.service_from) AS service_from,
           max(r.service_to) AS service_to, sum(r.units)::bigint AS units,
           CASE WHEN sum(r.units) < 0 THEN l.after ELSE %(through)s END AS moment
    FROM line l JOIN billing_ratedusage r
      ON r.period_id = l.period_id AND r.project_id = l.project_id AND r.price_id = l.price_id AND r.id > l.after
    WHERE r.tenant_id = %(tenant)s AND r.payer_id IS NULL AND r.id <= %(through)s
      AND r.service_month >= %(first_month)s AND r.service_month < %(end)s::timestamptz AT TIME ZONE 'UTC'
    GROUP BY l.position, l.after, r.record_id, r.share_num, r.share_den
    HAVING sum(r.units) <> 0
)
SELECT position, count(DISTINCT record_id) FROM held GROUP BY position;

-- name: PAGE
-- The largest first, behind the last job of the page before.
WITH line AS (
    SELECT * FROM unnest(%(positions)s::int[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
                         %(after)s::bigint[]) AS l (position, period_id, project_id, price_id, after)
), held AS (
    SELECT l.position, r.record_id, r.share_num, r.share_den, min(r.service_from) AS service_from,
           max(r.service_to) AS service_to, sum(r.units)::bigint AS units,
           CASE WHEN sum(r.units) < 0 THEN l.after ELSE %(through)s END AS moment
    FROM line l JOIN billing_ratedusage r
      ON r.period_id = l.period_id AND r.project_id = l.project_id AND r.price_id = l.price_id AND r.id > l.after
    WHERE r.tenant_id = %(tenant)s AND r.payer_id IS NULL AND r.id <= %(through)s
      AND r.service_month >= %(first_month)s AND r.service_month < %(end)s::timestamptz AT TIME ZONE 'UTC'
    GROUP BY l.position, l.after, r.record_id, r.share_num, r.share_den
    HAVING sum(r.units) <> 0
)
SELECT * FROM (
    SELECT h.record_id, coalesce(CASE WHEN b.record_id IS NULL THEN j."job_id" ELSE b."job_id" END, ''),
           coalesce(CASE WHEN b.record_id IS NULL THEN j."user" ELSE b."user" END, ''), h.service_from, h.service_to,
           h.units, h.share_num, h.share_den, j.record_id IS NULL, (SELECT count(DISTINCT record_id) FROM held),
           (h.units::numeric * h.share_num / h.share_den)::numeric(30, 6) AS rank
    FROM held h
    LEFT JOIN jobs_as_billed(%(tenant)s, %(moments)s::bigint[]) b ON b.record_id = h.record_id AND b.moment = h.moment
    LEFT JOIN billing_ratedjob j ON j.tenant_id = %(tenant)s AND j.record_id = h.record_id
) job
WHERE %(first)s OR (-rank, record_id, share_num, share_den) > (-(%(rank)s::numeric), %(record)s, %(num)s, %(den)s)
ORDER BY -rank, record_id, share_num, share_den
LIMIT %(limit)s;

-- name: CSV
-- A text is one cell of a spreadsheet, as `billing.documents.csv.cell` writes it.
COPY (
WITH line AS (
    SELECT * FROM unnest(%(positions)s::int[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
                         %(after)s::bigint[]) AS l (position, period_id, project_id, price_id, after)
), held AS (
    SELECT l.position, r.record_id, r.share_num, r.share_den, min(r.service_from) AS service_from,
           max(r.service_to) AS service_to, sum(r.units)::bigint AS units,
           CASE WHEN sum(r.units) < 0 THEN l.after ELSE %(through)s END AS moment
    FROM line l JOIN billing_ratedusage r
      ON r.period_id = l.period_id AND r.project_id = l.project_id AND r.price_id = l.price_id AND r.id > l.after
    WHERE r.tenant_id = %(tenant)s AND r.payer_id IS NULL AND r.id <= %(through)s
      AND r.service_month >= %(first_month)s AND r.service_month < %(end)s::timestamptz AT TIME ZONE 'UTC'
    GROUP BY l.position, l.after, r.record_id, r.share_num, r.share_den
    HAVING sum(r.units) <> 0
)
SELECT spreadsheet_cell(%(number)s, %(formula)s) AS invoice, h.position AS line, spreadsheet_cell(t.description, %(formula)s) AS description,
       spreadsheet_cell(t.project, %(formula)s) AS project,
       spreadsheet_cell(CASE WHEN b.record_id IS NULL THEN j."job_id" ELSE b."job_id" END, %(formula)s) AS job,
       spreadsheet_cell(CASE WHEN b.record_id IS NULL THEN j."name" ELSE b."name" END, %(formula)s) AS name,
       spreadsheet_cell(CASE WHEN b.record_id IS NULL THEN j."user" ELSE b."user" END, %(formula)s) AS "user",
       spreadsheet_cell(CASE WHEN b.record_id IS NULL THEN j."cluster" ELSE b."cluster" END, %(formula)s) AS cluster,
       spreadsheet_cell(CASE WHEN b.record_id IS NULL THEN j."account" ELSE b."account" END, %(formula)s) AS account,
       spreadsheet_cell(CASE WHEN b.record_id IS NULL THEN j."queue" ELSE b."queue" END, %(formula)s) AS queue,
       spreadsheet_cell(CASE WHEN b.record_id IS NULL THEN j."gpu_model" ELSE b."gpu_model" END, %(formula)s) AS gpu_model,
       spreadsheet_cell(CASE WHEN b.record_id IS NULL THEN j."state" ELSE b."state" END, %(formula)s) AS state,
       utc_text(h.service_from) AS service_from, utc_text(h.service_to) AS service_to, h.units,
       CASE WHEN h.share_den = 1 THEN h.share_num::text ELSE h.share_num || '/' || h.share_den END AS share,
       (h.units::numeric * h.share_num / (h.share_den * 3600::numeric))::numeric(40, 9) AS hours, t.unit,
       trim_scale(t.unit_price) AS unit_price, %(currency)s AS currency,
       (h.units::numeric * h.share_num * t.hour_price / (h.share_den * 3600::numeric))::numeric(50, 9) AS amount,
       'usage' AS kind
FROM held h
JOIN unnest(%(positions)s::int[], %(descriptions)s::text[], %(names)s::text[], %(meters)s::text[],
            %(unit_prices)s::numeric[], %(hour_prices)s::numeric[])
  AS t (position, description, project, unit, unit_price, hour_price)
  ON t.position = h.position
LEFT JOIN jobs_as_billed(%(tenant)s, %(moments)s::bigint[]) b ON b.record_id = h.record_id AND b.moment = h.moment
LEFT JOIN billing_ratedjob j ON j.tenant_id = %(tenant)s AND j.record_id = h.record_id
ORDER BY h.position, h.service_from, h.record_id
) TO STDOUT WITH (FORMAT csv, HEADER);
