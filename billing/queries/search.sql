-- What somebody looks up by its number. Compared by bytes, whatever the collation, by an index of its own.

-- name: JOBS
-- Jobs of that id, and of an array or a step of it (`1204_7`, `1204.0`, `1204[3]`), the newest first.
SELECT j.*, t.slug, t.name AS tenant_name
FROM billing_ratedjob j JOIN tenants_tenant t ON t.id = j.tenant_id
WHERE j.meter = '' AND (%(tenant)s::bigint IS NULL OR j.tenant_id = %(tenant)s)
  AND (j.job_id = %(id)s
       OR (j.job_id ~>=~ (%(id)s || '_') AND j.job_id ~<~ (%(id)s || '`'))
       OR (j.job_id ~>=~ (%(id)s || '.') AND j.job_id ~<~ (%(id)s || '/'))
       OR (j.job_id ~>=~ (%(id)s || '[') AND j.job_id ~<~ (%(id)s || '\')))
ORDER BY j.job_id = %(id)s DESC, j.shown_at DESC, j.record_id DESC, j.tenant_id LIMIT %(most)s;

-- name: USERS
-- Tenants whose usage has that user of the scheduler: one look into the index for each.
SELECT t.slug, t.name FROM tenants_tenant t
WHERE (%(tenant)s::bigint IS NULL OR t.id = %(tenant)s)
  AND EXISTS (SELECT FROM billing_usageseries s WHERE s.tenant_id = t.id AND s."user" = %(user)s)
ORDER BY t.name, t.slug LIMIT %(most)s
