-- The scheduler's users of tenants' jobs.

-- name: INACTIVE
-- All of whose jobs ended before, and whom no member, no wallet, and no quota or block that stands names: a tenant goes
-- on with those. Of one tenant and of some names alone where they are given: an index leads to its jobs, another to its
-- sums of meters, and none to both.
SELECT j.tenant_id, j."user" FROM billing_ratedjob j
WHERE (j.tenant_id = coalesce(%(tenant)s, j.tenant_id) AND j.meter = ''
       OR j.tenant_id = coalesce(%(tenant)s, j.tenant_id) AND j.meter <> '')
  AND j."user" <> '' AND j."user" = ANY (coalesce(%(names)s::text[], ARRAY[j."user"])) AND NOT EXISTS (
    SELECT FROM billing_jobuser p WHERE p.tenant_id = j.tenant_id AND p.name = j."user" AND p.name = erased_user(p.id))
GROUP BY j.tenant_id, j."user"
HAVING bool_and(j.ended < %(before)s) AND bool_and(j.ended IS NOT NULL) AND NOT EXISTS (
    -- Where rows of older months are back in the tables: later jobs of these users may be in files alone.
    SELECT FROM billing_dropped_months() AS d WHERE extract(epoch FROM d + interval '1 month') > %(before)s)
  AND NOT EXISTS (
    SELECT FROM tenants_membership m WHERE m.tenant_id = j.tenant_id AND j."user" = ANY (m.scheduler_users))
  AND NOT EXISTS (SELECT FROM billing_wallet w WHERE w.tenant_id = j.tenant_id AND w."user" = j."user")
  AND NOT EXISTS (
    SELECT FROM billing_quota q WHERE q.tenant_id = j.tenant_id AND q."user" = j."user" AND q.ended_at IS NULL)
  AND NOT EXISTS (
    SELECT FROM billing_quotablock b WHERE b.tenant_id = j.tenant_id AND b."user" = j."user" AND b.ended_at IS NULL)
ORDER BY j.tenant_id, j."user";

-- name: USERS
-- All names of a tenant's users, wherever they stand.
SELECT DISTINCT "user" FROM billing_ratedjob
WHERE tenant_id = %(tenant)s AND meter = '' OR tenant_id = %(tenant)s AND meter <> ''
UNION SELECT "user" FROM billing_billedjob WHERE tenant_id = %(tenant)s
UNION SELECT "user" FROM billing_usageseries WHERE tenant_id = %(tenant)s
UNION SELECT "user" FROM billing_wallettotal WHERE tenant_id = %(tenant)s
UNION SELECT "user" FROM billing_wallet WHERE tenant_id = %(tenant)s
UNION SELECT "user" FROM billing_quota WHERE tenant_id = %(tenant)s
UNION SELECT "user" FROM billing_quotablock WHERE tenant_id = %(tenant)s AND ended_at IS NOT NULL
UNION SELECT name FROM billing_jobuser WHERE tenant_id = %(tenant)s;

-- name: NUMBER_BILLED
-- A number for each user that anything was billed for.
INSERT INTO billing_jobuser (tenant_id, name)
SELECT DISTINCT u.tenant_id, u."user" FROM billing_usageseries u WHERE u.tenant_id = %(tenant)s AND u."user" <> ''
  AND NOT EXISTS (SELECT FROM billing_jobuser p WHERE p.tenant_id = u.tenant_id AND p.name = u."user")
ORDER BY 2 ON CONFLICT DO NOTHING;

-- name: NUMBER
-- And for each of these.
INSERT INTO billing_jobuser (tenant_id, name)
SELECT %(tenant)s, name FROM unnest(%(names)s::text[]) AS u (name) WHERE name <> ''
  AND NOT EXISTS (SELECT FROM billing_jobuser p WHERE p.tenant_id = %(tenant)s AND p.name = u.name)
ORDER BY 2 ON CONFLICT DO NOTHING;

-- name: RECORDS
-- Usage records of jobs of these users, each with the number as a name. What is another tenant's too names its people, as
-- long as that one does.
SELECT j.record_id, erased_user(p.id) FROM billing_ratedjob j JOIN billing_jobuser p ON p.name = j."user"
WHERE (j.tenant_id = %(tenant)s AND j.meter = '' OR j.tenant_id = %(tenant)s AND j.meter <> '')
  AND p.tenant_id = %(tenant)s AND p.name = ANY (%(names)s::text[]) AND p.name <> erased_user(p.id) AND NOT EXISTS (
    SELECT FROM billing_ratedjob o
    WHERE o.record_id = j.record_id AND o.tenant_id <> j.tenant_id AND o."user" = p.name);

-- name: KEPT_IN_REVISIONS
-- Months whose jobs stand in files alone, and of whose records superseded revisions name such users, or anybody: whose
-- these are, the jobs would say. They may be the tenant's if it ever owned the account.
SELECT string_agg(to_char(month, 'YYYY-MM'), ', ' ORDER BY month)
FROM billing_dropped_months() AS month
CROSS JOIN LATERAL month_number(extract(epoch FROM month::timestamp AT TIME ZONE 'UTC')::bigint) AS number
WHERE EXISTS (
    SELECT FROM clusters_usagerevision v
    WHERE v.record_id >= number::bigint << 40 AND v.record_id < (number::bigint + 1) << 40
      AND NOT EXISTS (SELECT FROM clusters_usagerecord r WHERE r.id = v.record_id)
      AND v."user" <> '' AND (%(all)s OR v."user" = ANY (%(names)s::text[]))
      AND EXISTS (SELECT FROM tenants_ownership o WHERE o.account_id = v.account_id AND o.tenant_id = %(tenant)s)
      AND NOT EXISTS (SELECT FROM billing_jobuser p WHERE p.name = v."user" AND p.name = erased_user(p.id)));

-- name: RENAME_BLOCKS
-- One that stands keeps its user, whose jobs it has to release.
UPDATE billing_quotablock u SET "user" = erased_user(p.id) FROM billing_jobuser p
WHERE u.tenant_id = %(tenant)s AND u.ended_at IS NOT NULL AND p.tenant_id = u.tenant_id AND p.name = u."user"
  AND p.name = ANY (%(names)s::text[]) AND p.name <> erased_user(p.id);

-- name: RENAME_SERIES
UPDATE billing_usageseries u
SET "user" = erased_user(p.id), digest = series_digest(u.project_id, u.resource, u.price_id, u.share_den, label_digest(
        usage_label(erased_user(p.id), u.account, u.cluster, u.gpu_model, u.queue, u.qos, u.state)))
FROM billing_jobuser p
WHERE u.tenant_id = %(tenant)s AND p.tenant_id = u.tenant_id AND p.name = u."user" AND p.name = ANY (%(names)s::text[])
  AND p.name <> erased_user(p.id);

-- name: FORGET_EFFICIENCY
-- Sums by user, which a worker computes again; those of clusters have everybody's.
DELETE FROM billing_efficiencysnapshot WHERE tenant_id = %(tenant)s OR cluster_id IS NOT NULL;

-- name: FORGET_RUN_COUNTS
-- Numbers of runs by user, which a worker counts again.
DELETE FROM billing_runcountsnapshot WHERE tenant_id = %(tenant)s;

-- name: FORGET
UPDATE billing_jobuser p SET name = erased_user(p.id)
WHERE p.tenant_id = %(tenant)s AND p.name = ANY (%(names)s::text[]) AND p.name <> erased_user(p.id);

-- name: TRANSACTION
-- Its number and when it began: who read before its commit has read names.
SELECT pg_current_xact_id()::text, now()
