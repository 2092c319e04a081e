-- The jobs behind an invoice line, as its invoice covers them, whatever became of them since. They work inside a tenant's
-- scope too.

-- Jobs of the tenant that changed since: by moment, a `rated_through`, how documents up to it cover them. A job that is
-- not among them is as it is now.
CREATE FUNCTION jobs_as_billed(of_tenant bigint, moments bigint[]) RETURNS TABLE (
    moment bigint, record_id bigint, cluster text, account text, job_id text, name text, "user" text, queue text,
    qos text, gpu_model text, mig_profile text, gpus int, share_num int, share_den int, cpu_milli bigint,
    memory_mib bigint, gpu_memory_mib bigint, billing bigint, nodes int, state text, submitted bigint, started bigint,
    ended bigint, seen_until bigint, suspended bigint, meter text, quantity bigint
) LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT DISTINCT ON (m.moment, b.record_id)
           m.moment, b.record_id, b.cluster, b.account, b.job_id, b.name, b."user", b.queue, b.qos, b.gpu_model,
           b.mig_profile, b.gpus, b.share_num, b.share_den, b.cpu_milli, b.memory_mib, b.gpu_memory_mib, b.billing,
           b.nodes, b.state, b.submitted, b.started, b.ended, b.seen_until, b.suspended, b.meter, b.quantity
    FROM unnest(moments) AS m (moment)
    JOIN billing_billedjob b ON b.tenant_id = of_tenant AND b.through >= m.moment
    ORDER BY m.moment, b.record_id, b.through
$$;

-- The jobs behind lines of a document, each with what it adds to its line: rated rows of the line's period, project and
-- price beyond `after` and up to `through`. What is taken back is described at the moment when it was billed, what is
-- charged as this document covers it. `first_month` and `end_at` bound the partitions that are read.
CREATE FUNCTION jobs_of_lines(
    of_tenant bigint, positions int[], periods bigint[], projects bigint[], prices bigint[], after bigint[],
    through bigint, first_month date, end_at timestamptz
) RETURNS TABLE (
    "position" int, record_id bigint, share_num int, share_den int, service_from bigint, service_to bigint,
    units bigint, moment bigint
) LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT l.position, r.record_id, r.share_num, r.share_den, min(r.service_from), max(r.service_to),
           sum(r.units)::bigint, CASE WHEN sum(r.units) < 0 THEN l.after ELSE through END
    FROM unnest(positions, periods, projects, prices, after) AS l (position, period_id, project_id, price_id, after)
    JOIN billing_ratedusage r
      ON r.period_id = l.period_id AND r.project_id = l.project_id AND r.price_id = l.price_id AND r.id > l.after
    WHERE r.tenant_id = of_tenant AND r.payer_id IS NULL AND r.id <= through
      AND r.service_month >= first_month AND r.service_month < end_at AT TIME ZONE 'UTC'
    GROUP BY l.position, l.after, r.record_id, r.share_num, r.share_den
    HAVING sum(r.units) <> 0
$$;

-- The cuts behind a line, each with its job's description and how many units of the resource it holds: of what is rated
-- for the tenant, by that price, for that payer, beyond `after` and up to `through`. What was covered before and is
-- another now is taken back whole, as it was, and covered anew: the sum of both is what the line adds, and each can be
-- computed by its own description.
CREATE FUNCTION line_cuts(
    of_tenant bigint, of_payer bigint, of_period bigint, of_project bigint, of_price bigint, of_resource text,
    after bigint, through bigint, begin_at timestamptz, end_at timestamptz
) RETURNS TABLE (
    record_id bigint, cluster text, account text, job_id text, name text, "user" text, queue text, qos text,
    gpu_model text, mig_profile text, gpus int, cpu_milli bigint, memory_mib bigint, gpu_memory_mib bigint,
    billing bigint, nodes int, state text, submitted bigint, started bigint, ended bigint, seen_until bigint,
    suspended bigint, meter text, quantity bigint, share_num int, share_den int, service_from bigint, service_to bigint,
    units bigint, count bigint
) LANGUAGE sql STABLE AS $$
    WITH own AS NOT MATERIALIZED (
        SELECT r.* FROM billing_ratedusage r
        WHERE r.tenant_id = of_tenant AND r.period_id = of_period AND r.project_id = of_project
          AND coalesce(r.payer_id, r.tenant_id) = of_payer AND r.price_id = of_price AND r.id <= through
          AND r.service_month >= date_trunc('month', begin_at AT TIME ZONE 'UTC')::date
          AND r.service_month <= (end_at AT TIME ZONE 'UTC')::date
    ), rated AS (
        SELECT r.record_id, r.service_from, r.service_to, r.share_num, r.share_den,
               coalesce(sum(r.units) FILTER (WHERE r.id <= after), 0)::bigint AS before, sum(r.units)::bigint AS now
        FROM own r
        WHERE after = 0 OR r.record_id IN (SELECT n.record_id FROM own n WHERE n.id > after)
        GROUP BY r.record_id, r.service_from, r.service_to, r.share_num, r.share_den
    ), cut AS (
        SELECT r.record_id, r.service_from, r.service_to, r.share_num, r.share_den, v.units, v.moment
        FROM rated r CROSS JOIN LATERAL (VALUES (-r.before, after), (r.now, through)) v (units, moment)
        WHERE r.before <> r.now AND v.units <> 0
    )
    SELECT u.*, resource_amount(of_resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter,
                                u.quantity)
    FROM (
        SELECT c.record_id,
               CASE WHEN b.record_id IS NULL THEN j.cluster ELSE b.cluster END AS cluster,
               CASE WHEN b.record_id IS NULL THEN j.account ELSE b.account END AS account,
               CASE WHEN b.record_id IS NULL THEN j.job_id ELSE b.job_id END AS job_id,
               CASE WHEN b.record_id IS NULL THEN j.name ELSE b.name END AS name,
               CASE WHEN b.record_id IS NULL THEN j."user" ELSE b."user" END AS "user",
               CASE WHEN b.record_id IS NULL THEN j.queue ELSE b.queue END AS queue,
               CASE WHEN b.record_id IS NULL THEN j.qos ELSE b.qos END AS qos,
               CASE WHEN b.record_id IS NULL THEN j.gpu_model ELSE b.gpu_model END AS gpu_model,
               CASE WHEN b.record_id IS NULL THEN j.mig_profile ELSE b.mig_profile END AS mig_profile,
               CASE WHEN b.record_id IS NULL THEN j.gpus ELSE b.gpus END AS gpus,
               CASE WHEN b.record_id IS NULL THEN j.cpu_milli ELSE b.cpu_milli END AS cpu_milli,
               CASE WHEN b.record_id IS NULL THEN j.memory_mib ELSE b.memory_mib END AS memory_mib,
               CASE WHEN b.record_id IS NULL THEN j.gpu_memory_mib ELSE b.gpu_memory_mib END AS gpu_memory_mib,
               CASE WHEN b.record_id IS NULL THEN j.billing ELSE b.billing END AS billing,
               CASE WHEN b.record_id IS NULL THEN j.nodes ELSE b.nodes END AS nodes,
               CASE WHEN b.record_id IS NULL THEN j.state ELSE b.state END AS state,
               CASE WHEN b.record_id IS NULL THEN j.submitted ELSE b.submitted END AS submitted,
               CASE WHEN b.record_id IS NULL THEN j.started ELSE b.started END AS started,
               CASE WHEN b.record_id IS NULL THEN j.ended ELSE b.ended END AS ended,
               CASE WHEN b.record_id IS NULL THEN j.seen_until ELSE b.seen_until END AS seen_until,
               CASE WHEN b.record_id IS NULL THEN j.suspended ELSE b.suspended END AS suspended,
               CASE WHEN b.record_id IS NULL THEN j.meter ELSE b.meter END AS meter,
               CASE WHEN b.record_id IS NULL THEN j.quantity ELSE b.quantity END AS quantity,
               c.share_num, c.share_den, c.service_from, c.service_to, c.units
        FROM cut c
        LEFT JOIN jobs_as_billed(of_tenant, CASE WHEN after = 0 THEN ARRAY[through] ELSE ARRAY[after, through] END) b
          ON b.record_id = c.record_id AND b.moment = c.moment
        LEFT JOIN billing_ratedjob j ON j.tenant_id = of_tenant AND j.record_id = c.record_id
    ) u
$$;
