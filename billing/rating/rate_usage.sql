-- From `usage_input` to what has to change; `write_usage.sql` writes it.
--
-- Tables that other sessions grow are looked up row by row (LATERAL … OFFSET 0): a plan that is good for ten thousand
-- records must not depend on when statistics of them were last gathered.

-- name: SETTINGS
-- A batch has some ten thousand records, which fit into memory and are described by a small sample. That a look-up finds
-- one row the planner does not see: it would make a bitmap for each, and compile them for longer than they take.
SET LOCAL work_mem = '32MB'; SET LOCAL default_statistics_target = 10;
SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off

-- name: LOCK_ACCOUNTS
-- All locks are taken in order of id, as by every other holder of several. `ownership.assign` locks its account against
-- the share lock; the weaker locks of foreign keys disturb neither.
SELECT id FROM clusters_account WHERE id = ANY (%(accounts)s) ORDER BY id FOR SHARE

-- name: LOCK_OWNERS
-- Whoever pays for an owner too, be it for another time: what is rated for it to pay is covered by its invoices.
WITH owner AS (SELECT tenant_id FROM tenants_ownership WHERE account_id = ANY (%(accounts)s))
SELECT id FROM tenants_tenant WHERE id IN (
    SELECT tenant_id FROM owner UNION SELECT y.payer_id FROM billing_payer y WHERE y.tenant_id IN (TABLE owner)
) ORDER BY id FOR NO KEY UPDATE

-- name: PAYERS
-- Somebody may have come to pay while the locks were waited for.
SELECT DISTINCT payer_id FROM billing_payer WHERE tenant_id = ANY (%(tenants)s)

-- name: HOLD_PROJECTS
-- A job does not check by itself that its project stays.
SELECT id FROM tenants_project
WHERE id IN (SELECT project_id FROM tenants_ownership WHERE account_id = ANY (%(accounts)s)) ORDER BY id FOR KEY SHARE

-- name: MAY_BE_SHOWN
-- A look at the numbers between the first and the last record, where a look for each costs as much as a total does.
SELECT EXISTS (
    SELECT FROM (SELECT min(record_id) AS first, max(record_id) AS last FROM usage_input WHERE NOT fresh) u
    CROSS JOIN LATERAL (
        SELECT FROM billing_ratedjob r WHERE r.record_id >= u.first AND r.record_id <= u.last LIMIT 1
    ) j
)

-- name: BEFORE
-- What jobs show of records that were rated before: once read, and read again only where a former owner, of a record that
-- moved to another account, had to be waited for.
DELETE FROM rate_before;
INSERT INTO rate_before
SELECT u.record_id, j.tenant_id, j.started, coalesce(j.ended, j.seen_until), j."user", j.gpu_model,
       (j."user", j.gpu_model) <> (u."user", u.gpu_model),
       usage_label(j."user", j.account, j.cluster, j.gpu_model, j.queue, j.qos, j.state),
       usage_label(u."user", u.account, u.cluster, u.gpu_model, u.queue, u.qos, u.state), j.ended IS NULL,
       coalesce(j.cost_price_id, 0), j.cost_units, j.gpu_units
FROM usage_input u CROSS JOIN LATERAL (
    SELECT * FROM billing_ratedjob r WHERE r.record_id = u.record_id OFFSET 0
) j WHERE NOT u.fresh;
ANALYZE rate_before (record_id, tenant_id)

-- name: LOCK_FORMER_OWNERS
WITH former AS (
    SELECT tenant_id FROM rate_before
    EXCEPT SELECT o.tenant_id FROM tenants_ownership o WHERE o.account_id IN (SELECT account_id FROM usage_input)
)
SELECT id FROM tenants_tenant WHERE id IN (
    SELECT tenant_id FROM former UNION SELECT y.payer_id FROM billing_payer y WHERE y.tenant_id IN (TABLE former)
) ORDER BY id FOR NO KEY UPDATE

-- name: PERIODS_NEEDED
SELECT * FROM (
    SELECT t.id, t.timezone, t.anchor_day, min(u.started) AS since, max(greatest(u.finish, u.started + 1)) AS until,
           (SELECT min(p.start) FROM billing_billingperiod p WHERE p.tenant_id = t.id) AS first,
           (SELECT max(p."end") FROM billing_billingperiod p WHERE p.tenant_id = t.id) AS last
    FROM (SELECT account_id, min(started) AS started, max(finish) AS finish FROM usage_input
          WHERE started IS NOT NULL GROUP BY account_id) u
    JOIN tenants_ownership o ON o.account_id = u.account_id
    CROSS JOIN LATERAL (
        SELECT o.tenant_id AS id UNION SELECT y.payer_id FROM billing_payer y WHERE y.tenant_id = o.tenant_id
    ) w JOIN tenants_tenant t ON t.id = w.id
    GROUP BY t.id
) needed
WHERE first IS NULL OR extract(epoch FROM first) > since OR extract(epoch FROM last) < until

-- name: ENSURE_MONTHS
-- What grows is in the month up to which a run is seen.
SELECT billing_ensure_month(month::date, coalesce(month >= utc_month(grown), false))
FROM (SELECT min(started) AS since, max(finish) AS until, min(finish) FILTER (WHERE ended IS NULL) AS grown
      FROM usage_input) u,
     generate_series(date_trunc('month', to_timestamp(since) AT TIME ZONE 'UTC'),
                     to_timestamp(until) AT TIME ZONE 'UTC', '1 month') AS month
WHERE since IS NOT NULL

-- name: ENSURE_JOBS
SELECT billing_ensure_jobs(month, grows)
FROM (SELECT (record_id >> 40)::int AS month, bool_or(ended IS NULL) AS grows FROM usage_input
      GROUP BY 1 ORDER BY 1) m

-- name: CUTS
-- What should be rated where the price of a span is one for all of it. Zero-length runs hold nothing: they have no cut, but
-- stay visible as jobs.
INSERT INTO rate_cut
SELECT u.record_id, greatest(u.started, o.since) AS service_from, least(u.finish, o.until) AS service_to,
       resource_amount(o.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
           * held_seconds(o.since, o.until, u.started, u.finish, u.suspended) AS units,
       o.offer_id, CASE o.resource WHEN 'gpu' THEN u.share_num ELSE 1 END AS share_num,
       resource_parts(o.resource, u.share_den) AS share_den, 1 AS place
FROM usage_input u JOIN rate_offer o
  ON o.account_id = u.account_id AND o.since < u.finish AND o.until > u.started
 AND (NOT %(by_cluster)s OR o.cluster = u.cluster) AND (NOT %(by_queue)s OR o.queue = u.queue)
 AND (NOT %(by_qos)s OR o.qos = u.qos) AND (NOT %(by_priority_class)s OR o.priority_class = u.priority_class)
 AND (NOT %(by_gpu_model)s OR o.gpu_model = u.gpu_model) AND (NOT %(by_mig_profile)s OR o.mig_profile = u.mig_profile)
 AND (NOT %(by_state)s OR o.state = u.state)
 AND (NOT %(in_hours)s OR o.open_id IS NULL) AND (NOT %(by_use)s OR o.use IS NULL)
WHERE resource_amount(o.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity) > 0
  AND (u.suspended = 0 OR held_seconds(o.since, o.until, u.started, u.finish, u.suspended) > 0)

-- name: CUTS_OF_UNRATED
-- CUTS, where nothing was rated before and so all that should be is new: written once, as changes.
INSERT INTO rate_change (id, record_id, service_from, service_to, units, offer_id, share_num, share_den, generation,
    revision, service_month, counted, "user", gpu_model)
SELECT nextval('billing_ratedusage_id_seq'), u.record_id, greatest(u.started, o.since), least(u.finish, o.until),
       resource_amount(o.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
           * held_seconds(o.since, o.until, u.started, u.finish, u.suspended),
       o.offer_id, CASE o.resource WHEN 'gpu' THEN u.share_num ELSE 1 END, resource_parts(o.resource, u.share_den), 1,
       u.revision, o.service_month, o.counted, u."user", u.gpu_model
FROM usage_input u JOIN rate_offer o
  ON o.account_id = u.account_id AND o.since < u.finish AND o.until > u.started
 AND (NOT %(by_cluster)s OR o.cluster = u.cluster) AND (NOT %(by_queue)s OR o.queue = u.queue)
 AND (NOT %(by_qos)s OR o.qos = u.qos) AND (NOT %(by_priority_class)s OR o.priority_class = u.priority_class)
 AND (NOT %(by_gpu_model)s OR o.gpu_model = u.gpu_model) AND (NOT %(by_mig_profile)s OR o.mig_profile = u.mig_profile)
 AND (NOT %(by_state)s OR o.state = u.state)
WHERE resource_amount(o.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity) > 0
  AND (u.suspended = 0 OR held_seconds(o.since, o.until, u.started, u.finish, u.suspended) > 0)

-- name: CUTS_IN_HOURS
-- The same where prices hold in hours of the week: pieces of records, each as long as its terms hold within a span. No
-- slice is longer than `longest` seconds.
INSERT INTO rate_cut
SELECT u.record_id, greatest(u.started, p.since), least(u.finish, p.until),
       resource_amount(o.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
           * held_seconds(p.since, p.until, u.started, u.finish, u.suspended),
       o.offer_id, CASE o.resource WHEN 'gpu' THEN u.share_num ELSE 1 END, resource_parts(o.resource, u.share_den), 1
FROM (
    SELECT record_id, min(offer_id) AS offer_id, min(since) AS since, max(until) AS until FROM (
        SELECT *, sum(begins) OVER (PARTITION BY record_id, span_id, resource ORDER BY since) AS island FROM (
            SELECT u.record_id, s.span_id, o.resource, o.offer_id, greatest(h.since, s.since) AS since,
                   least(h.until, s.until) AS until,
                   (lag(o.terms_id) OVER (PARTITION BY u.record_id, s.span_id, o.resource ORDER BY h.since)
                    IS DISTINCT FROM o.terms_id)::int AS begins
            FROM usage_input u JOIN rate_span s
              ON s.account_id = u.account_id AND s.since < u.finish AND s.until > u.started
             AND s.calendar_id IS NOT NULL
            CROSS JOIN LATERAL (
                SELECT * FROM rate_slice l
                WHERE l.calendar_id = s.calendar_id AND l.since < least(u.finish, s.until)
                  AND l.since > greatest(u.started, s.since) - %(longest)s
                  AND l.until > greatest(u.started, s.since) OFFSET 0
            ) h JOIN rate_offer o ON o.span_id = s.span_id AND o.open_id = h.open_id
             AND (NOT %(by_cluster)s OR o.cluster = u.cluster) AND (NOT %(by_queue)s OR o.queue = u.queue)
             AND (NOT %(by_qos)s OR o.qos = u.qos)
             AND (NOT %(by_priority_class)s OR o.priority_class = u.priority_class)
             AND (NOT %(by_gpu_model)s OR o.gpu_model = u.gpu_model)
             AND (NOT %(by_mig_profile)s OR o.mig_profile = u.mig_profile)
             AND (NOT %(by_state)s OR o.state = u.state) AND (NOT %(by_use)s OR o.use IS NULL)
            WHERE resource_amount(o.resource, u.gpus, u.cpu_milli, u.memory_mib, u.gpu_memory_mib, u.billing, u.meter,
                                  u.quantity) > 0
        ) slice
    ) step GROUP BY record_id, span_id, resource, island
) p JOIN usage_input u ON u.record_id = p.record_id JOIN rate_offer o ON o.offer_id = p.offer_id
WHERE u.suspended = 0 OR held_seconds(p.since, p.until, u.started, u.finish, u.suspended) > 0

-- name: CUTS_BY_USE
-- The same where prices depend on use: of a cut, the whole device-seconds of each use, those of the same terms together.
-- Of what was busy the running total of each hour is rounded down to whole seconds, so that any cuts of the run add up to
-- the same. More rows of one second differ by their generation, which begins as their place.
INSERT INTO rate_cut
WITH offered AS (
    SELECT u.record_id, o.offer_id, o.since, o.until FROM usage_input u JOIN rate_offer o
      ON o.account_id = u.account_id AND o.since < u.finish AND o.until > u.started
     AND (NOT %(by_cluster)s OR o.cluster = u.cluster) AND (NOT %(by_queue)s OR o.queue = u.queue)
     AND (NOT %(by_qos)s OR o.qos = u.qos) AND (NOT %(by_priority_class)s OR o.priority_class = u.priority_class)
     AND (NOT %(by_gpu_model)s OR o.gpu_model = u.gpu_model)
     AND (NOT %(by_mig_profile)s OR o.mig_profile = u.mig_profile)
     AND (NOT %(by_state)s OR o.state = u.state)
     AND (NOT %(in_hours)s OR o.open_id IS NULL) AND o.use IS NOT NULL
), slice AS (
    SELECT u.record_id, s.span_id, o.use, o.offer_id, greatest(h.since, s.since) AS since,
           least(h.until, s.until) AS until,
           (lag(o.terms_id) OVER (PARTITION BY u.record_id, s.span_id, o.use ORDER BY h.since)
            IS DISTINCT FROM o.terms_id)::int AS begins
    FROM usage_input u JOIN rate_span s
      ON s.account_id = u.account_id AND s.since < u.finish AND s.until > u.started AND s.calendar_id IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT * FROM rate_slice l
        WHERE l.calendar_id = s.calendar_id AND l.since < least(u.finish, s.until)
          AND l.since > greatest(u.started, s.since) - %(longest)s
          AND l.until > greatest(u.started, s.since) OFFSET 0
    ) h JOIN rate_offer o ON o.span_id = s.span_id AND o.open_id = h.open_id
     AND (NOT %(by_cluster)s OR o.cluster = u.cluster) AND (NOT %(by_queue)s OR o.queue = u.queue)
     AND (NOT %(by_qos)s OR o.qos = u.qos) AND (NOT %(by_priority_class)s OR o.priority_class = u.priority_class)
     AND (NOT %(by_gpu_model)s OR o.gpu_model = u.gpu_model)
     AND (NOT %(by_mig_profile)s OR o.mig_profile = u.mig_profile)
     AND (NOT %(by_state)s OR o.state = u.state) AND o.use IS NOT NULL
    WHERE %(in_hours)s AND u.gpus > 0
), piece AS (
    TABLE offered
    UNION ALL
    SELECT record_id, min(offer_id), min(since), max(until) FROM (
        SELECT *, sum(begins) OVER (PARTITION BY record_id, span_id, use ORDER BY since) AS island FROM slice
    ) step GROUP BY record_id, span_id, use, island
)
SELECT d.record_id, d.service_from, d.service_to, d.units, d.offer_id, u.share_num, u.share_den, d.place
FROM (
    SELECT record_id, service_from, service_to, sum(units)::bigint AS units, min(offer_id) AS offer_id,
           row_number() OVER (PARTITION BY record_id, service_from ORDER BY terms_id, service_to) AS place
    FROM (
        SELECT p.record_id, greatest(u.started, p.since) AS service_from, least(u.finish, p.until) AS service_to,
               o.offer_id, o.terms_id,
               CASE o.use WHEN 'busy' THEN b.busy WHEN 'idle' THEN b.covered - b.busy
                          ELSE u.gpus * held_seconds(p.since, p.until, u.started, u.finish, u.suspended)
                               - b.covered END AS units
        FROM piece p JOIN usage_input u ON u.record_id = p.record_id JOIN rate_offer o ON o.offer_id = p.offer_id
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(div(h.busy * x.ends, h.covered) - div(h.busy * x.begins, h.covered)), 0)::bigint
                       AS busy,
                   coalesce(sum(x.ends - x.begins), 0)::bigint AS covered
            FROM (
                SELECT * FROM clusters_utilisationhour k WHERE k.record_id = u.record_id AND k.covered > 0
                  AND k.hour < p.until AND k.hour > p.since - 3600 OFFSET 0
            ) h CROSS JOIN LATERAL covered_within(
                h.hour, h.covered, u.gpus, u.started, u.finish, u.suspended, p.since, p.until) x
        ) b
        WHERE u.gpus > 0
          AND (u.suspended = 0 OR held_seconds(p.since, p.until, u.started, u.finish, u.suspended) > 0)
    ) used GROUP BY record_id, service_from, service_to, terms_id HAVING sum(units) > 0
) d JOIN usage_input u ON u.record_id = d.record_id

-- name: ANALYZE_CUTS
-- Statistics are of what is joined by; of all columns they take longer than the rows.
ANALYZE rate_cut (record_id, offer_id)

-- name: CHANGES_OF_UNRATED
-- From cuts by hours or by use, where nothing was rated before.
INSERT INTO rate_change (id, record_id, service_from, service_to, units, offer_id, share_num, share_den, generation,
    revision, service_month, counted, "user", gpu_model)
SELECT nextval('billing_ratedusage_id_seq'), w.record_id, w.service_from, w.service_to, w.units, w.offer_id, w.share_num,
       w.share_den, w.place, u.revision, o.service_month, o.counted, u."user", u.gpu_model
FROM rate_cut w JOIN usage_input u USING (record_id) JOIN rate_offer o USING (offer_id)

-- name: ENTRIES
-- What was ever rated of the records, in the months in which they lay or lie now: what holds is its sum, and beyond its
-- generations a cut that comes and goes does not meet its own past. Terms are copied only where no offer has them. Of
-- offers the planner expects a single one to fit, and would compare every row with every offer.
SET LOCAL enable_nestloop = off;
INSERT INTO rate_entry
SELECT r.id, r.record_id, r.service_from, r.service_to, r.share_num, r.share_den, r.units, r.generation, o.offer_id,
       CASE WHEN o.offer_id IS NULL THEN r.resource END, CASE WHEN o.offer_id IS NULL THEN r.tenant_id END,
       CASE WHEN o.offer_id IS NULL THEN r.project_id END, CASE WHEN o.offer_id IS NULL THEN r.period_id END,
       CASE WHEN o.offer_id IS NULL THEN r.version_id END, CASE WHEN o.offer_id IS NULL THEN r.price_id END,
       CASE WHEN o.offer_id IS NULL THEN r.verdict END, CASE WHEN o.offer_id IS NULL THEN r.payer_id END
FROM usage_input u LEFT JOIN (
    SELECT record_id, min(started) AS started, max(finish) AS finish FROM rate_before GROUP BY record_id
) b USING (record_id) CROSS JOIN LATERAL (
    SELECT * FROM billing_ratedusage x WHERE x.record_id = u.record_id
      AND x.service_month >= utc_month(least(b.started, u.started))
      AND x.service_month <= local_day(greatest(b.finish, u.finish), 'UTC') OFFSET 0
) r LEFT JOIN rate_offer o ON o.offer_id = o.terms_id
    AND (o.resource, o.tenant_id, o.project_id, o.period_id, o.verdict)
      = (r.resource, r.tenant_id, r.project_id, r.period_id, r.verdict)
    AND coalesce(o.version_id, 0) = coalesce(r.version_id, 0) AND coalesce(o.price_id, 0) = coalesce(r.price_id, 0)
    AND coalesce(o.payer_id, 0) = coalesce(r.payer_id, 0)
WHERE NOT u.fresh;
SET LOCAL enable_nestloop = on;
ANALYZE rate_entry (record_id, terms_id)

-- name: FORMER_TERMS
-- The terms that nothing is offered by any more, as offers.
INSERT INTO rate_offer (offer_id, terms_id, resource, tenant_id, project_id, period_id, version_id, price_id, verdict,
    payer_id, timezone, unit_price, counted)
SELECT f.id, f.id, f.resource, f.tenant_id, f.project_id, f.period_id, f.version_id, f.price_id, f.verdict, f.payer_id,
       p.timezone, c.unit_price, f.resource = 'gpu' OR f.verdict = 'charged'
FROM (
    SELECT (SELECT count(*) FROM rate_offer) + row_number() OVER () AS id, d.*
    FROM (
        SELECT DISTINCT resource, tenant_id, project_id, period_id, version_id, price_id, verdict, payer_id
        FROM rate_entry WHERE terms_id IS NULL
    ) d
) f JOIN billing_billingperiod p ON p.id = f.period_id LEFT JOIN billing_price c ON c.id = f.price_id

-- name: CHANGES
-- A cut whose units differ is taken back and written anew, both whole, so that each row can be split over days by itself
-- and a reversal splits exactly as what it reverses. Rated rows do not carry user and model: where one of them changed, all
-- of the record is taken back under its old description, which its job still shows. Of a run that went on, the cut that
-- grew is told apart: no document covers it yet, so its row grows in its place, as the newest. Totals change all the same by
-- what it was and what it is.
INSERT INTO rate_change (record_id, service_from, service_to, units, offer_id, share_num, share_den, id, generation,
    revision, service_month, counted, "user", gpu_model, grows)
WITH side AS (
    SELECT record_id, service_from, service_to, share_num, share_den, terms_id, units AS before, 0 AS now
    FROM rate_entry WHERE terms_id IS NOT NULL
    UNION ALL
    SELECT e.record_id, e.service_from, e.service_to, e.share_num, e.share_den, o.terms_id, e.units, 0
    FROM rate_entry e JOIN rate_offer o ON o.account_id IS NULL
        AND (o.resource, o.tenant_id, o.project_id, o.period_id, o.verdict)
          = (e.resource, e.tenant_id, e.project_id, e.period_id, e.verdict)
        AND coalesce(o.version_id, 0) = coalesce(e.version_id, 0) AND coalesce(o.price_id, 0) = coalesce(e.price_id, 0)
        AND coalesce(o.payer_id, 0) = coalesce(e.payer_id, 0)
    WHERE e.terms_id IS NULL
    UNION ALL
    SELECT w.record_id, w.service_from, w.service_to, w.share_num, w.share_den, o.terms_id, 0, w.units
    FROM rate_cut w JOIN rate_offer o USING (offer_id)
), other AS (
    SELECT record_id, service_from, service_to, share_num, share_den, terms_id, sum(before)::bigint AS before,
           sum(now)::bigint AS now
    FROM side GROUP BY record_id, service_from, service_to, share_num, share_den, terms_id
    HAVING sum(before) <> sum(now) OR record_id IN (SELECT record_id FROM rate_before WHERE redescribed)
    ORDER BY record_id
), stretch AS (
    SELECT record_id, service_from, share_num, share_den, terms_id, max(before) AS units,
           max(service_to) FILTER (WHERE before <> 0) AS until
    FROM other WHERE record_id IN (SELECT record_id FROM rate_before WHERE open AND NOT redescribed)
    GROUP BY record_id, service_from, share_num, share_den, terms_id
    HAVING count(*) = 2 AND min(before) = 0 AND min(now) = 0
       AND max(service_to) FILTER (WHERE now <> 0) > max(service_to) FILTER (WHERE before <> 0)
), covered AS (
    SELECT o.offer_id AS terms_id, max(i.rated_through) AS through
    FROM rate_offer o JOIN billing_billingperiod p ON p.id = o.period_id
    JOIN billing_invoice i ON i.tenant_id = coalesce(o.payer_id, o.tenant_id) AND i.period_end >= p."end"
    WHERE o.offer_id IN (SELECT terms_id FROM stretch) GROUP BY o.offer_id
), grown AS (
    SELECT DISTINCT ON (s.record_id, s.service_from, s.share_num, s.share_den, s.terms_id) s.*, e.id, e.generation
    FROM stretch s JOIN rate_entry e
      ON (e.record_id, e.service_from, e.service_to, e.share_num, e.share_den, e.terms_id, e.units)
       = (s.record_id, s.service_from, s.until, s.share_num, s.share_den, s.terms_id, s.units)
    ORDER BY s.record_id, s.service_from, s.share_num, s.share_den, s.terms_id, e.id DESC
), change AS (
    SELECT d.*, -d.before AS units, b."user", b.gpu_model FROM other d JOIN rate_offer o ON o.offer_id = d.terms_id
    JOIN rate_before b ON b.record_id = d.record_id AND b.tenant_id = o.tenant_id WHERE d.before <> 0
    UNION ALL
    SELECT d.*, d.now, u."user", u.gpu_model FROM other d JOIN usage_input u ON u.record_id = d.record_id
    WHERE d.now <> 0
)
SELECT c.record_id, c.service_from, c.service_to, c.units, c.terms_id, c.share_num, c.share_den,
       nextval('billing_ratedusage_id_seq'), coalesce(w.generation, coalesce(g.last, 0) + row_number() OVER (
           PARTITION BY c.record_id, o.resource, c.service_from, c.units < 0 ORDER BY c.terms_id, c.service_to)),
       u.revision, utc_month(c.service_from), o.counted, c."user", c.gpu_model, w.generation IS NOT NULL
FROM change c
JOIN usage_input u ON u.record_id = c.record_id
JOIN rate_offer o ON o.offer_id = c.terms_id
LEFT JOIN (
    SELECT n.* FROM grown n LEFT JOIN covered k ON k.terms_id = n.terms_id WHERE n.id > coalesce(k.through, 0)
) w ON (w.record_id, w.service_from, w.share_num, w.share_den, w.terms_id)
     = (c.record_id, c.service_from, c.share_num, c.share_den, c.terms_id)
LEFT JOIN (SELECT record_id, max(generation) AS last FROM rate_entry GROUP BY record_id) g
  ON g.record_id = c.record_id

-- name: ANALYZE_CHANGES
ANALYZE rate_change (record_id, offer_id)
