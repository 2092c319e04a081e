-- The jobs behind the lines of an invoice, each with what it adds to its line.

-- name: COUNTS
SELECT position, count(DISTINCT record_id)
FROM jobs_of_lines(
        %(tenant)s, %(positions)s::int[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
        %(after)s::bigint[], %(through)s, %(first_month)s::date, %(end)s::timestamptz)
GROUP BY position;

-- name: PAGE
-- The largest first, behind the last job of the page before.
WITH held AS (
    SELECT * FROM jobs_of_lines(
        %(tenant)s, %(positions)s::int[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
        %(after)s::bigint[], %(through)s, %(first_month)s::date, %(end)s::timestamptz)
)
SELECT * FROM (
    SELECT h.record_id, coalesce(CASE WHEN b.record_id IS NULL THEN j."job_id" ELSE b."job_id" END, ''),
           coalesce(CASE WHEN b.record_id IS NULL THEN j."user" ELSE b."user" END, ''), h.service_from, h.service_to,
           h.units, h.share_num, h.share_den, coalesce(j.meter <> '', true), (SELECT count(DISTINCT record_id) FROM held),
           (h.units::numeric * h.share_num / h.share_den)::numeric(30, 6) AS rank
    FROM held h
    LEFT JOIN jobs_as_billed(%(tenant)s, %(moments)s::bigint[]) b ON b.record_id = h.record_id AND b.moment = h.moment
    LEFT JOIN billing_ratedjob j ON j.tenant_id = %(tenant)s AND j.record_id = h.record_id
) job
WHERE %(first)s OR (-rank, record_id, share_num, share_den) > (-(%(rank)s::numeric), %(record)s, %(num)s, %(den)s)
ORDER BY -rank, record_id, share_num, share_den
LIMIT %(limit)s;

-- name: KEEP
-- The jobs behind each line, and the largest of them, in the order of PAGE. Kept once.
WITH held AS (
    SELECT * FROM jobs_of_lines(
        %(tenant)s, %(positions)s::int[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
        %(after)s::bigint[], %(through)s, %(first_month)s::date, %(end)s::timestamptz)
), job AS (
    SELECT h.*, row_number() OVER (
        PARTITION BY h.position ORDER BY -(h.units::numeric * h.share_num / h.share_den)::numeric(30, 6), h.record_id,
                                         h.share_num, h.share_den) AS place
    FROM held h
)
INSERT INTO billing_linejobs (line_id, tenant_id, jobs, largest)
SELECT n.id, %(tenant)s, count(DISTINCT j.record_id),
       coalesce(jsonb_agg(to_jsonb(j) - '{position,place}'::text[] ORDER BY j.place)
                FILTER (WHERE j.place <= %(kept)s), '[]')
FROM billing_invoiceline n LEFT JOIN job j ON j.position = n.position
WHERE n.invoice_id = %(invoice)s AND n.position = ANY (%(positions)s) GROUP BY n.id ORDER BY n.id
ON CONFLICT (line_id) DO NOTHING

-- name: KEPT_PAGE
-- As PAGE, from what is kept of the line. A job is described as it was billed, or as it is.
SELECT h.record_id, coalesce(CASE WHEN b.record_id IS NULL THEN j."job_id" ELSE b."job_id" END, ''),
       coalesce(CASE WHEN b.record_id IS NULL THEN j."user" ELSE b."user" END, ''), h.service_from, h.service_to,
       h.units, h.share_num, h.share_den, j.record_id IS NULL, h.jobs, h.rank, h.is_all
FROM (
    SELECT h.*, k.jobs, jsonb_array_length(k.largest) < %(kept)s AS is_all, (h.units::numeric * h.share_num / h.share_den)::numeric(30, 6) AS rank
    FROM billing_linejobs k CROSS JOIN jsonb_to_recordset(k.largest) AS h (
        record_id bigint, service_from bigint, service_to bigint, units bigint, share_num int, share_den int, moment bigint)
    WHERE k.line_id = %(line)s
) h
LEFT JOIN LATERAL (
    SELECT * FROM billing_billedjob x
    WHERE x.tenant_id = %(tenant)s AND x.record_id = h.record_id AND x.through >= h.moment ORDER BY x.through LIMIT 1
) b ON true
LEFT JOIN LATERAL (
    SELECT * FROM billing_ratedjob r WHERE r.record_id = h.record_id AND r.tenant_id = %(tenant)s OFFSET 0
) j ON true
WHERE %(first)s OR (-h.rank, h.record_id, h.share_num, h.share_den) > (-(%(rank)s::numeric), %(record)s, %(num)s, %(den)s)
ORDER BY -h.rank, h.record_id, h.share_num, h.share_den
LIMIT %(limit)s

-- name: CSV
-- A text is one cell of a spreadsheet, as `billing.documents.csv.cell` writes it. Only what rows are ordered by is computed
-- before the first of them is sent: each job is looked up and written as its row comes.
COPY (
SELECT spreadsheet_cell(%(number)s, %(formula)s) AS invoice, h.position AS line, spreadsheet_cell(h.description, %(formula)s) AS description,
       spreadsheet_cell(h.project, %(formula)s) AS project,
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
       (h.units::numeric * h.share_num / (h.share_den * 3600::numeric))::numeric(40, 9) AS hours, h.unit,
       trim_scale(h.unit_price) AS unit_price, %(currency)s AS currency,
       (h.units::numeric * h.share_num * h.hour_price / (h.share_den * 3600::numeric))::numeric(50, 9) AS amount,
       'usage' AS kind
FROM (
    SELECT h.*, t.description, t.project, t.unit, t.unit_price, t.hour_price
    FROM jobs_of_lines(
            %(tenant)s, %(positions)s::int[], %(periods)s::bigint[], %(projects)s::bigint[], %(prices)s::bigint[],
            %(after)s::bigint[], %(through)s, %(first_month)s::date, %(end)s::timestamptz) h
    JOIN unnest(%(positions)s::int[], %(descriptions)s::text[], %(names)s::text[], %(meters)s::text[],
                %(unit_prices)s::numeric[], %(hour_prices)s::numeric[])
      AS t (position, description, project, unit, unit_price, hour_price)
      ON t.position = h.position
    ORDER BY h.position, h.service_from, h.record_id OFFSET 0
) h
LEFT JOIN LATERAL (
    SELECT * FROM billing_billedjob x
    WHERE x.tenant_id = %(tenant)s AND x.record_id = h.record_id AND x.through >= h.moment ORDER BY x.through LIMIT 1
) b ON true
LEFT JOIN LATERAL (
    SELECT * FROM billing_ratedjob r WHERE r.record_id = h.record_id AND r.tenant_id = %(tenant)s OFFSET 0
) j ON true
ORDER BY h.position, h.service_from, h.record_id
) TO STDOUT WITH (FORMAT csv, HEADER %(has_header)s);
