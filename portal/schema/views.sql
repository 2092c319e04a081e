-- What statements share, with the rights of whoever asks.

-- Every run with its names; [started, finish) is what it held so far, as epoch seconds. The columns of `usage_input`.
CREATE VIEW clusters_run WITH (security_invoker = true) AS
SELECT u.id AS record_id, u.revision, u.cluster_id, c.name AS cluster, u.account_id, a.name AS account, u.job_id, u.name,
       u."user", u.queue, u.qos, u.priority_class, u.gpus, u.gpu_model, u.mig_profile, u.share_num, u.share_den,
       u.cpu_milli, u.memory_mib, u.nodes, u.state, u.submitted, u.started, u.ended, u.seen_until,
       usage_finish(u.meter, u.started, u.ended, u.seen_until) AS finish, u.suspended, u.gpu_memory_mib, u.billing, u.meter,
       u.quantity
FROM clusters_usagerecord u JOIN clusters_account a ON a.id = u.account_id JOIN clusters_cluster c ON c.id = u.cluster_id;

-- What runs hold that is rated. Measures count over again what GPUs, cores and memory are there for.
CREATE VIEW billing_resource WITH (security_invoker = true) AS
SELECT * FROM (VALUES ('gpu', false), ('cpu', false), ('memory', false), ('gpu-memory', true), ('billing', true))
    AS r (resource, is_measure);

-- The same, and what sums count: the declared meters, each a resource of its own.
CREATE VIEW billing_anyresource WITH (security_invoker = true) AS
SELECT resource, is_measure, '' AS meter FROM billing_resource
UNION ALL SELECT name, false, name FROM clusters_declaredmeter;

-- What each tenant's plan charges when, as epoch seconds; NULL while it has none. Neighboring times are different. What is
-- waived has no rated row: proof and pages compute it by this, which knows nothing of how usage is cut. Tenants have no right
-- on it, and see their own by the view of what is waived.
CREATE VIEW billing_chargedtime AS
SELECT tenant_id, at AS since, lead(at, 1, 9223372036854775807) OVER (PARTITION BY tenant_id ORDER BY at) AS until, charges
FROM (
    SELECT tenant_id, at, charges, row_number() OVER w = 1 OR lag(charges) OVER w IS DISTINCT FROM charges AS differs
    FROM (
        SELECT id AS tenant_id, 0::bigint AS at FROM tenants_tenant
        UNION SELECT tenant_id, extract(epoch FROM start)::bigint FROM billing_billingperiod
        UNION SELECT s.tenant_id, extract(epoch FROM x.at)::bigint FROM billing_subscription s
            CROSS JOIN LATERAL (VALUES (s.since), (s.until)) AS x (at) WHERE x.at IS NOT NULL
        UNION SELECT s.tenant_id, day_start(v.effective_from, z.timezone) FROM billing_subscription s
            JOIN billing_planversion v ON v.plan_id = s.plan_id
            JOIN (SELECT DISTINCT tenant_id, timezone FROM billing_billingperiod) z ON z.tenant_id = s.tenant_id
    ) border LEFT JOIN LATERAL (
        SELECT v.charges FROM billing_billingperiod p
        JOIN billing_subscription s ON s.tenant_id = p.tenant_id AND extract(epoch FROM s.since)::bigint <= at
            AND (s.until IS NULL OR extract(epoch FROM s.until)::bigint > at)
        JOIN billing_planversion v ON v.plan_id = s.plan_id AND v.effective_from <= local_day(at, p.timezone)
        WHERE p.tenant_id = border.tenant_id AND p.start <= to_timestamp(at) AND p."end" > to_timestamp(at)
        ORDER BY v.effective_from DESC LIMIT 1
    ) v ON true
    WINDOW w AS (PARTITION BY tenant_id ORDER BY at)
) moment WHERE differs;
-- Up to which rated row each billing period is covered by issued invoices of its tenant, or of another that pays.
CREATE VIEW billing_coveredperiod WITH (security_invoker = true) AS
SELECT p.id AS period_id, w.payer_id, max(i.rated_through) AS through
FROM billing_billingperiod p JOIN (
    SELECT id AS tenant_id, id AS payer_id FROM tenants_tenant UNION SELECT tenant_id, payer_id FROM billing_payer
) w ON w.tenant_id = p.tenant_id
JOIN billing_invoice i ON i.tenant_id = w.payer_id AND i.state = 'issued' AND i.period_end >= p."end"
GROUP BY p.id, w.payer_id;

-- Prices as usage is priced by them. `by_total`: tiers or an allowance look at the total of a period, so that
-- `unit_price` is the first unit's.
CREATE VIEW billing_pricetag WITH (security_invoker = true) AS
SELECT c.id AS price_id, c.meter, c.unit_price, l.currency, c.scale <> '{}' OR c.allowance_id IS NOT NULL AS by_total,
       c.title, c.unit
FROM billing_price c JOIN billing_planversion v ON v.id = c.version_id JOIN billing_plan l ON l.id = v.plan_id;

-- What takes each document's total off, and what is left of it, in minor units; below zero it is to be given back.
-- `credited` by credit notes, of which `to_wallet` was given back to a wallet; `written_off` as far as it is not paid or
-- credited after all; `late_from` days after it is due, null where no policy says; `under_way`: money may yet come by an
-- attempt to be paid; `disputed`: the last of inquiry, lost and open, "" for none. The model InvoiceBalance.
CREATE VIEW billing_invoicebalance WITH (security_invoker = true) AS
SELECT i.id AS invoice_id, p.received, n.credited, n.to_wallet, f.written_off, o.unpaid - f.written_off AS "left",
       coalesce(
           (SELECT d.past_due FROM billing_dunningpolicy d WHERE d.tenant_id = i.tenant_id AND d.since <= i.due_on
            ORDER BY d.since DESC LIMIT 1),
           (SELECT d.past_due FROM billing_dunningpolicy d WHERE d.tenant_id IS NULL AND d.since <= i.due_on
            ORDER BY d.since DESC LIMIT 1)
       ) AS late_from,
       EXISTS (SELECT FROM billing_paymentattempt a WHERE a.invoice_id = i.id AND (
                   a.state IN ('ready', 'unknown', 'processing', 'needs_review') OR a.state = 'offered' AND a.page_used
               )) AS under_way,  -- as UNDER_WAY of the model
       coalesce((SELECT max(x.state) FROM billing_paymentdispute x JOIN billing_paymentattempt a ON a.id = x.attempt_id
                 WHERE a.invoice_id = i.id AND x.state <> 'won'), '') AS disputed
FROM billing_invoice i
CROSS JOIN LATERAL (
    SELECT coalesce(sum(amount), 0)::bigint AS received FROM billing_payment WHERE invoice_id = i.id
) p
CROSS JOIN LATERAL (
    SELECT coalesce(-sum(total), 0)::bigint AS credited, coalesce(-sum(prepaid), 0)::bigint AS to_wallet
    FROM billing_invoice WHERE original_id = i.id AND state = 'issued'
) n
CROSS JOIN LATERAL (SELECT i.total - i.prepaid - p.received - n.credited + n.to_wallet AS unpaid) o
CROSS JOIN LATERAL (
    SELECT least(coalesce(sum(amount), 0)::bigint, greatest(o.unpaid, 0)) AS written_off
    FROM billing_writeoff WHERE invoice_id = i.id AND undone_at IS NULL
) f;

-- What is left of each document, as billing_invoicebalance has it: for sums over all of them, which take a fifth of the time
-- where payments, notes and what is written off are added up once instead of invoice by invoice. The model InvoiceRemainder.
CREATE VIEW billing_invoiceremainder WITH (security_invoker = true) AS
SELECT i.id AS invoice_id, o.unpaid - least(coalesce(f.amount, 0), greatest(o.unpaid, 0)) AS "left"
FROM billing_invoice i
LEFT JOIN (
    SELECT invoice_id, sum(amount)::bigint AS received FROM billing_payment GROUP BY invoice_id
) p ON p.invoice_id = i.id
LEFT JOIN (
    SELECT original_id, sum(total - prepaid)::bigint AS credited FROM billing_invoice WHERE state = 'issued'
    GROUP BY original_id
) n ON n.original_id = i.id
LEFT JOIN (
    SELECT invoice_id, sum(amount)::bigint AS amount FROM billing_writeoff WHERE undone_at IS NULL GROUP BY invoice_id
) f ON f.invoice_id = i.id
CROSS JOIN LATERAL (
    SELECT i.total - i.prepaid - coalesce(p.received, 0) + coalesce(n.credited, 0) AS unpaid
) o;

-- Plans that have more than prices of single units, by the tenants that are, were or will be on them: what such a period comes
-- to is told by its totals alone.
CREATE VIEW billing_chargedbytotal WITH (security_invoker = true) AS
SELECT s.tenant_id, s.plan_id FROM billing_subscription s JOIN billing_planversion v ON v.plan_id = s.plan_id
WHERE EXISTS (SELECT 1 FROM billing_price c WHERE c.version_id = v.id AND (c.scale <> '{}' OR c.allowance_id IS NOT NULL))
   OR EXISTS (SELECT 1 FROM billing_fee f
       WHERE f.version_id = v.id AND coalesce(f.tenant_id, s.tenant_id) = s.tenant_id)
   OR EXISTS (SELECT 1 FROM billing_commitment m
       WHERE m.version_id = v.id AND coalesce(m.tenant_id, s.tenant_id) = s.tenant_id)
   OR EXISTS (SELECT 1 FROM billing_discount d
       WHERE d.version_id = v.id AND coalesce(d.tenant_id, s.tenant_id) = s.tenant_id);

-- Prices of plans that are paid out of wallets: their usage is billed once it is booked there, and on no invoice.
CREATE VIEW billing_walletprice WITH (security_invoker = true) AS
SELECT c.id AS price_id FROM billing_price c JOIN billing_planversion v ON v.id = c.version_id
JOIN billing_plan p ON p.id = v.plan_id WHERE p.settles = 'wallet';

GRANT SELECT ON billing_chargedbytotal, clusters_declaredmeter, billing_anyresource TO clustertab_agent;
GRANT SELECT ON billing_resource, billing_invoicebalance, billing_pricetag TO clustertab_portal, clustertab_agent;
GRANT SELECT ON billing_invoiceremainder TO clustertab_agent;

-- What a tenant may know of tables that it has no right on. The views read them as their owner, for whom the policies of
-- row level security are no limit: they name the tenant, and the users in `app.users`, as these do.
CREATE FUNCTION own_users() RETURNS text[] LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT ARRAY(SELECT jsonb_array_elements_text(nullif(current_setting('app.users', true), '')::jsonb))
$$;

-- The jobs of its own that run or wait: what they were asked for, and what a MIG slice counts on their cluster.
CREATE VIEW billing_openjob WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, u.requested, u.time_limit, c.shares
FROM billing_ratedjob j JOIN clusters_usagerecord u ON u.id = j.record_id
JOIN clusters_cluster c ON c.id = u.cluster_id
WHERE j.ended IS NULL AND j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
  AND ((SELECT nullif(current_setting('app.users', true), '')) IS NULL OR j."user" = ANY ((SELECT own_users())::text[]));
GRANT SELECT ON billing_openjob TO clustertab_portal, clustertab_agent;

-- Those of them that the scheduler no longer knows.
CREATE VIEW billing_vanishedjob WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, v.since
FROM clusters_vanishedrun v JOIN billing_ratedjob j ON j.record_id = v.record_id
WHERE j.ended IS NULL AND j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
  AND ((SELECT nullif(current_setting('app.users', true), '')) IS NULL OR j."user" = ANY ((SELECT own_users())::text[]));
GRANT SELECT ON billing_vanishedjob TO clustertab_portal;

-- Its own runs and how busy they were. A run that changed its owner is seen by both; its hours each sees only as far
-- as its account was the tenant's in them.
CREATE VIEW billing_ownrun WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, j.cluster, j.account, j."user", j.job_id, j.name, j.gpu_model, j.gpus, j.share_num,
       j.share_den, u.started, coalesce(u.ended, u.seen_until) AS finish, u.suspended, u.submitted, u.eligible, u.ended,
       u.time_limit, j.state
FROM billing_ratedjob j JOIN clusters_usagerecord u ON u.id = j.record_id
WHERE j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
  AND ((SELECT nullif(current_setting('app.users', true), '')) IS NULL OR j."user" = ANY ((SELECT own_users())::text[]));

CREATE VIEW billing_ownhour WITH (security_barrier = true) AS
SELECT o.tenant_id, h.record_id, h.hour, h.busy, h.covered, h.source, h.metric
FROM (
    SELECT tenant_id, account_id,
           range_agg(int8range(extract(epoch FROM since)::bigint, extract(epoch FROM until)::bigint)) AS owned
    FROM tenants_ownership WHERE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint) GROUP BY tenant_id, account_id
) o
JOIN clusters_usagerecord u ON u.account_id = o.account_id
JOIN clusters_utilisationhour h ON h.record_id = u.id
WHERE o.owned && int8range(h.hour, h.hour + 3600)
  AND ((SELECT nullif(current_setting('app.users', true), '')) IS NULL OR u."user" = ANY ((SELECT own_users())::text[]));

GRANT SELECT ON billing_ownrun, billing_ownhour TO clustertab_portal;

-- What was measured of a job of the tenant's beside what it held: energy in joules, where its cluster counts it, null where
-- it is unknown; and of a pod what it used beyond its requests, in the smallest quantity of each meter, `parts` of which are
-- a unit. The sums have keys made of the run's: one of the whole run, or one of each hour (clusters.energy,
-- clusters.connectors.prometheus.pod_use). Hours that another tenant owned are not among them.
--
-- A function, and its statements planned anew with the run's own months: a view plans over the tables of all months.
CREATE OR REPLACE FUNCTION billing_own_measured(of_record bigint)
RETURNS TABLE (kind text, title text, unit text, parts bigint, quantity numeric)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    run record;
    first bigint;
    beyond bigint;
BEGIN
    SELECT j.tenant_id, u.cluster_id, u.source_key, u.started, coalesce(u.ended, u.seen_until) AS finish,
           coalesce(u.submitted, u.started) AS submitted, c.kind, c.energy_meter_id INTO run
    FROM billing_ratedjob j JOIN clusters_usagerecord u ON u.id = j.record_id
    JOIN clusters_cluster c ON c.id = u.cluster_id
    WHERE j.record_id = of_record AND j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
      AND ((SELECT nullif(current_setting('app.users', true), '')) IS NULL OR j."user" = ANY ((SELECT own_users())::text[]))
      AND u.meter = '' AND u.started IS NOT NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    first := month_number(least(run.submitted, run.started))::bigint << 40;
    beyond := (month_number(run.finish) + 1)::bigint << 40;
    RETURN QUERY
    SELECT 'energy', m.title::text, m.unit::text, 1::bigint, (
        SELECT sum(s.quantity) FROM (
            SELECT 'energy:' || run.source_key AS key
            UNION ALL
            SELECT 'energy:' || run.source_key || '/'
                || to_char(to_timestamp(hour) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24"Z"')
            FROM generate_series(run.started / 3600 * 3600, run.finish, 3600) AS hour
            WHERE run.kind = 'prometheus'
        ) k
        JOIN clusters_usagerecord e ON e.cluster_id = run.cluster_id AND e.source_key = k.key AND e.meter = run.energy_meter_id
        JOIN billing_ratedjob s ON s.record_id = e.id AND s.tenant_id = run.tenant_id
        WHERE e.id >= first AND e.id < beyond AND s.record_id >= first AND s.record_id < beyond)
    FROM clusters_declaredmeter m WHERE m.name = run.energy_meter_id;
    IF run.kind = 'prometheus' THEN
        RETURN QUERY
        SELECT 'use', m.title::text, m.unit::text, s.share_den::bigint, sum(s.quantity)
        FROM generate_series(run.started / 3600 * 3600, run.finish, 3600) AS hour
        CROSS JOIN (VALUES ('cpu'), ('memory')) AS k (what)
        JOIN clusters_usagerecord e ON e.cluster_id = run.cluster_id
            AND e.source_key = 'use/' || k.what || '/' || split_part(run.source_key, '/', 1) || '/'
                || to_char(to_timestamp(hour) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24"Z"')
        JOIN billing_ratedjob s ON s.record_id = e.id AND s.tenant_id = run.tenant_id
        JOIN clusters_declaredmeter m ON m.name = e.meter
        WHERE e.id >= first AND e.id < beyond AND s.record_id >= first AND s.record_id < beyond
        GROUP BY m.title, m.unit, s.share_den ORDER BY m.title;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION billing_own_measured(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_own_measured(bigint) TO clustertab_portal, clustertab_operator;

-- Only programs of 1.0.0 read these two: to be removed by the release after the next.
-- What the tenant's jobs took of energy, in joules, where their clusters count it; null where it is unknown. The sums have
-- keys made of the run's: one of the whole run, or one of each hour (clusters.energy). Hours that another tenant owned are
-- not among them.
CREATE VIEW billing_ownenergy WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, m.title, m.unit, (
    SELECT sum(s.quantity) FROM (
        SELECT 'energy:' || u.source_key AS key
        UNION ALL
        SELECT 'energy:' || u.source_key || '/' || to_char(to_timestamp(hour) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24"Z"')
        FROM generate_series(u.started / 3600 * 3600, coalesce(u.ended, u.seen_until), 3600) AS hour
        WHERE c.kind = 'prometheus'
    ) k
    JOIN clusters_usagerecord e ON e.cluster_id = u.cluster_id AND e.source_key = k.key AND e.meter = c.energy_meter_id
    JOIN billing_ratedjob s ON s.record_id = e.id AND s.tenant_id = j.tenant_id
    WHERE e.id >= month_number(coalesce(u.submitted, u.started))::bigint << 40
      AND e.id < (month_number(coalesce(u.ended, u.seen_until)) + 1)::bigint << 40
) AS joules
FROM billing_ratedjob j
JOIN clusters_usagerecord u ON u.id = j.record_id
JOIN clusters_cluster c ON c.id = u.cluster_id
JOIN clusters_declaredmeter m ON m.name = c.energy_meter_id
WHERE j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
  AND ((SELECT nullif(current_setting('app.users', true), '')) IS NULL OR j."user" = ANY ((SELECT own_users())::text[]))
  AND u.meter = '' AND u.started IS NOT NULL;
GRANT SELECT ON billing_ownenergy TO clustertab_portal;

-- What the tenant's pods used beyond their requests, in the smallest quantity of each meter, `parts` of which are a unit.
-- The sums of hours have keys made of the pod's uid (clusters.connectors.prometheus.pod_use).
CREATE VIEW billing_ownuse WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, x.title, x.unit, x.parts, x.quantity
FROM billing_ratedjob j
JOIN clusters_usagerecord u ON u.id = j.record_id
JOIN clusters_cluster c ON c.id = u.cluster_id
CROSS JOIN LATERAL (
    SELECT m.title, m.unit, s.share_den AS parts, sum(s.quantity) AS quantity
    FROM generate_series(u.started / 3600 * 3600, coalesce(u.ended, u.seen_until), 3600) AS hour
    CROSS JOIN (VALUES ('cpu'), ('memory')) AS k (what)
    JOIN clusters_usagerecord e ON e.cluster_id = u.cluster_id
        AND e.source_key = 'use/' || k.what || '/' || split_part(u.source_key, '/', 1) || '/'
            || to_char(to_timestamp(hour) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24"Z"')
    JOIN billing_ratedjob s ON s.record_id = e.id AND s.tenant_id = j.tenant_id
    JOIN clusters_declaredmeter m ON m.name = e.meter
    WHERE e.id >= month_number(u.started)::bigint << 40
      AND e.id < (month_number(coalesce(u.ended, u.seen_until)) + 1)::bigint << 40
    GROUP BY m.title, m.unit, s.share_den
) x
WHERE j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
  AND ((SELECT nullif(current_setting('app.users', true), '')) IS NULL OR j."user" = ANY ((SELECT own_users())::text[]))
  AND c.kind = 'prometheus' AND u.meter = '' AND u.started IS NOT NULL;
GRANT SELECT ON billing_ownuse TO clustertab_portal;

-- Its own usage as rating reads it, column by column that of `clusters_run`, to try another plan on it: of accounts that
-- were the tenant's while it ran.
CREATE VIEW billing_ownusage WITH (security_barrier = true) AS
SELECT u.id AS record_id, u.revision, u.cluster_id, c.name AS cluster, u.account_id, a.name AS account, u.job_id, u.name,
       u."user", u.queue, u.qos, u.priority_class, u.gpus, u.gpu_model, u.mig_profile, u.share_num, u.share_den,
       u.cpu_milli, u.memory_mib, u.nodes, u.state, u.submitted, u.started, u.ended, u.seen_until,
       usage_finish(u.meter, u.started, u.ended, u.seen_until) AS finish, u.suspended, u.gpu_memory_mib, u.billing, u.meter,
       u.quantity
FROM clusters_usagerecord u JOIN clusters_account a ON a.id = u.account_id JOIN clusters_cluster c ON c.id = u.cluster_id
WHERE EXISTS (
    SELECT FROM tenants_ownership o
    WHERE o.account_id = u.account_id AND o.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
      AND (o.until IS NULL OR u.started < extract(epoch FROM o.until))
      AND (o.since IS NULL OR usage_finish(u.meter, u.started, u.ended, u.seen_until) > extract(epoch FROM o.since))
);
GRANT SELECT ON billing_ownusage TO clustertab_agent;

-- The declared meters of which it used anything, in words.
CREATE VIEW billing_ownmeter WITH (security_barrier = true) AS
SELECT m.name, m.title, m.unit FROM clusters_declaredmeter m
WHERE EXISTS (SELECT FROM billing_periodtotal t WHERE t.resource = m.name
              AND t.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
GRANT SELECT ON billing_ownmeter TO clustertab_portal;

-- Cores and memory that its plan did not charge while its jobs held them.
CREATE VIEW billing_waivedpart WITH (security_barrier = true) AS
SELECT tenant_id, record_id, project_id, resource, service_from, service_to, share_den,
       amount * held_seconds(service_from, service_to, started, finish, suspended) AS units
FROM (
    SELECT j.tenant_id, j.record_id, o.project_id, r.resource, resource_parts(r.resource, 1) AS share_den,
           resource_amount(r.resource, 0, u.cpu_milli, u.memory_mib, 0, 0) AS amount,
           greatest(u.started, t.since, extract(epoch FROM o.since)::bigint) AS service_from,
           least(coalesce(u.ended, u.seen_until), t.until, extract(epoch FROM o.until)::bigint) AS service_to,
           u.started, coalesce(u.ended, u.seen_until) AS finish, u.suspended
    FROM billing_ratedjob j JOIN clusters_usagerecord u ON u.id = j.record_id AND u.started IS NOT NULL
    JOIN tenants_ownership o ON o.account_id = u.account_id AND o.tenant_id = j.tenant_id
    JOIN billing_chargedtime t ON t.tenant_id = j.tenant_id
    JOIN billing_resource r ON NOT r.is_measure AND NOT resource_is_rated(r.resource, r.is_measure, t.charges)
    WHERE j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
      AND ((SELECT nullif(current_setting('app.users', true), '')) IS NULL OR j."user" = ANY ((SELECT own_users())::text[]))
) part WHERE service_to > service_from AND amount > 0;
GRANT SELECT ON billing_waivedpart TO clustertab_portal;

-- Who pays for whom: names alone of the other side, since the table of tenants shows each its own row.
CREATE VIEW billing_paying WITH (security_barrier) AS
SELECT y.tenant_id, y.payer_id, y.since, y.until, t.name AS tenant, t.slug AS tenant_slug, p.name AS payer
FROM billing_payer y JOIN tenants_tenant t ON t.id = y.tenant_id JOIN tenants_tenant p ON p.id = y.payer_id
WHERE y.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint) OR y.payer_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint);
GRANT SELECT ON billing_paying TO clustertab_portal;

-- The rows of the last second before `finish` that are rated for the tenant, less what was taken back: by resource the
-- terms under which the job ran then.
CREATE FUNCTION billing_terms_of(tenant bigint, record bigint, finish bigint)
RETURNS TABLE (resource text, verdict text, price_id bigint) LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT DISTINCT ON (n.resource) n.resource, n.verdict, n.price_id FROM (
        SELECT r.resource, r.verdict, r.price_id, max(r.id) AS id FROM billing_ratedusage r
        WHERE r.tenant_id = tenant AND r.record_id = record AND r.service_to = finish
          AND r.service_month = utc_month(finish - 1)
        GROUP BY r.resource, r.verdict, r.price_id, r.service_from, r.share_num, r.share_den
        HAVING sum(r.units) <> 0
    ) n ORDER BY n.resource, n.id DESC
$$;

-- The same, with the cores and memory that it held then and that its plan did not charge. Whoever had GPUs has a row of
-- them while the job was its own; without GPUs none may be left.
CREATE FUNCTION billing_all_terms_of(tenant bigint, record bigint, finish bigint)
RETURNS TABLE (resource text, verdict text, price_id bigint) LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT c.resource, c.verdict, c.price_id FROM billing_terms_of(tenant, record, finish) c
    UNION ALL
    SELECT w.resource, 'waived', NULL FROM (
        SELECT r.resource, j.gpus FROM billing_ratedjob j
        JOIN billing_resource r ON NOT r.is_measure AND r.resource <> 'gpu'
         AND resource_amount(r.resource, 0, j.cpu_milli, j.memory_mib, 0, 0) > 0
        WHERE j.tenant_id = tenant AND j.record_id = record
    ) w
    WHERE NOT EXISTS (SELECT FROM billing_terms_of(tenant, record, finish) c WHERE c.resource = w.resource)
      AND (w.gpus = 0 OR EXISTS (SELECT FROM billing_terms_of(tenant, record, finish) c))
$$;

-- How often clusters are pulled, of those that are, and over which version: without the secrets beside it.
CREATE VIEW clusters_pullinterval WITH (security_barrier = true) AS
SELECT cluster_id, every, api_version FROM clusters_connection WHERE enabled;
GRANT SELECT ON clusters_pullinterval TO clustertab_agent;

-- The clusters on which the tenant owns, or owned, an account: how often each is pulled, if not paused, and how far its
-- utilisation is read, and the passes that were finished over it, without what they read.
CREATE VIEW clusters_ownsource WITH (security_barrier = true) AS
SELECT c.id, c.name, n.every, coalesce(NOT n.enabled, false) AS paused, t.complete_through AS used_through
FROM clusters_cluster c
LEFT JOIN clusters_connection n ON n.cluster_id = c.id
LEFT JOIN clusters_telemetry t ON t.cluster_id = c.id AND t.enabled
WHERE c.id IN (
    SELECT a.cluster_id FROM clusters_account a JOIN tenants_ownership o ON o.account_id = a.id
    WHERE o.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
);
CREATE VIEW clusters_ownreading WITH (security_barrier = true) AS
SELECT p.id, s.id AS cluster_id, p.started_at, p.ended_at, p.as_of
FROM clusters_ownsource s JOIN clusters_pull p ON p.cluster_id = s.id
WHERE p.outcome = 'done' AND p.as_of IS NOT NULL;
GRANT SELECT ON clusters_ownsource, clusters_ownreading TO clustertab_agent;

-- Runs that go on: the second up to which each is rated, up to which its cluster is read, and the seconds to its next pull.
-- Everybody's to operators, a tenant's own to what is computed for it. One that its scheduler has lost, or suspended, does
-- not go on.
CREATE VIEW billing_openrun WITH (security_barrier = true) AS
SELECT j.tenant_id, j.record_id, j.project_id, j."user", j.account, j.cluster, j.queue, j.qos, j.gpu_model, j.gpus,
       j.share_num, j.share_den, j.cpu_milli, j.memory_mib, j.gpu_memory_mib, j.billing, j.seen_until,
       extract(epoch FROM c.complete_through)::bigint AS read_until, coalesce(n.every, 0) AS ahead
FROM billing_ratedjob j JOIN clusters_cluster c ON c.name = j.cluster
LEFT JOIN clusters_pullinterval n ON n.cluster_id = c.id
WHERE j.ended IS NULL AND j.seen_until > j.started AND j.state <> 'SUSPENDED'
  AND NOT EXISTS (SELECT FROM clusters_vanishedrun v WHERE v.record_id = j.record_id)
  AND ((SELECT pg_has_role(current_user, 'clustertab_operator', 'USAGE'))
       OR j.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
GRANT SELECT ON billing_openrun TO clustertab_agent;
GRANT SELECT ON billing_walletprice TO clustertab_agent;
