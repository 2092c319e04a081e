-- The jobs behind an invoice line, in order of time.

-- name: JOBS
SELECT record_id, coalesce(job_id, ''), coalesce(name, ''), coalesce("user", ''), service_from, service_to, units,
       share_num, share_den
FROM line_cuts(%(tenant)s, %(payer)s, %(period)s, %(project)s, %(price)s, %(resource)s, %(after)s, %(through)s,
               %(start)s::timestamptz, %(end)s::timestamptz)
ORDER BY service_from, record_id, service_to, units

-- name: EVIDENCE
-- The rows of `usage.csv`. A text is one cell of a spreadsheet, as `billing.documents.csv.cell` writes it.
COPY (
SELECT %(line)s, u.record_id, spreadsheet_cell(u.job_id, %(formula)s),
       CASE WHEN p.id IS NOT NULL THEN 'u' || p.id ELSE '' END,
       spreadsheet_cell(u.cluster, %(formula)s), spreadsheet_cell(u.account, %(formula)s),
       spreadsheet_cell(u.queue, %(formula)s), spreadsheet_cell(u.gpu_model, %(formula)s),
       spreadsheet_cell(u.mig_profile, %(formula)s), spreadsheet_cell(u.state, %(formula)s), utc_text(u.started),
       utc_text(coalesce(u.ended, u.seen_until)), u.suspended, u.count, utc_text(u.service_from),
       utc_text(u.service_to), u.units, u.share_num, u.share_den
FROM line_cuts(%(tenant)s, %(payer)s, %(period)s, %(project)s, %(price)s, %(resource)s, %(after)s, %(through)s,
               %(start)s::timestamptz, %(end)s::timestamptz) u
LEFT JOIN billing_jobuser p ON p.tenant_id = %(tenant)s AND p.name = u."user" AND p.name <> ''
ORDER BY u.service_from, u.record_id, u.service_to, u.units
) TO STDOUT WITH (FORMAT csv)

-- name: PEOPLE
-- Who used anything in these periods, and who did before a job was described anew or left the tenant.
SELECT 'u' || p.id, p.name, p.id FROM billing_jobuser p
WHERE p.tenant_id = %(tenant)s AND p.name IN (
    SELECT s."user" FROM billing_usageseries s WHERE s.tenant_id = %(tenant)s AND s.id IN (
        SELECT d.series_id FROM billing_billingperiod b JOIN billing_dailyusage d ON d.tenant_id = b.tenant_id
            AND d.day >= (b.start AT TIME ZONE b.timezone)::date AND d.day <= ((b."end" - interval '1 second') AT TIME ZONE b.timezone)::date
        WHERE b.tenant_id = %(tenant)s AND b.id = ANY (%(periods)s))
    UNION ALL
    SELECT j."user" FROM billing_billedjob j JOIN billing_billingperiod b ON b.tenant_id = j.tenant_id
        AND j.started < extract(epoch FROM b."end")
        AND coalesce(j.ended, j.seen_until) > extract(epoch FROM b.start)
    WHERE j.tenant_id = %(tenant)s AND b.id = ANY (%(periods)s)
) ORDER BY p.id
