-- Which terms hold for which usage when, and at which price.

-- name: SPANS
-- Elementary spans of each account: cut at every border that could change owner, payer, period or terms, so that within
-- one span everything but the shape of the usage is constant. UTC months are borders too: a rated row lies in one month,
-- so that the conservation sums of a month need no clipping. Days of plans and payers begin by the zone of the billing
-- period that they lie in: a tenant that moves keeps the borders that it had.
INSERT INTO rate_span
WITH reach AS (
    SELECT account_id, min(started) AS lo, max(finish) AS hi FROM usage_input
    WHERE started IS NOT NULL GROUP BY account_id
), own AS (
    SELECT o.id, o.account_id, o.tenant_id, o.project_id,
           greatest(coalesce(extract(epoch FROM o.since)::bigint, r.lo), r.lo) AS s,
           least(coalesce(extract(epoch FROM o.until)::bigint, r.hi), r.hi) AS e
    FROM reach r JOIN tenants_ownership o ON o.account_id = r.account_id
    WHERE (o.since IS NULL OR extract(epoch FROM o.since) < r.hi)
      AND (o.until IS NULL OR extract(epoch FROM o.until) > r.lo)
), mark AS (
    SELECT own.id, own.s AS at FROM own
    UNION SELECT own.id, b.at FROM own CROSS JOIN LATERAL (
        SELECT extract(epoch FROM p.start)::bigint AS at FROM billing_billingperiod p WHERE p.tenant_id = own.tenant_id
        UNION ALL SELECT extract(epoch FROM month AT TIME ZONE 'UTC')::bigint FROM generate_series(
            date_trunc('month', to_timestamp(own.s) AT TIME ZONE 'UTC'), to_timestamp(own.e) AT TIME ZONE 'UTC',
            '1 month') AS month
        UNION ALL SELECT extract(epoch FROM x.at)::bigint FROM billing_subscription sub,
            LATERAL (VALUES (sub.since), (sub.until)) AS x (at) WHERE sub.tenant_id = own.tenant_id
        UNION ALL SELECT d.at FROM (
            SELECT DISTINCT p.timezone FROM billing_billingperiod p WHERE p.tenant_id = own.tenant_id
        ) z, LATERAL (
            SELECT DISTINCT days.day FROM billing_subscription sub
            JOIN billing_planversion v ON v.plan_id = sub.plan_id
            LEFT JOIN billing_price c ON c.version_id = v.id,
            LATERAL (VALUES (v.effective_from), (c.valid_from), (c.valid_until)) AS days (day)
            WHERE sub.tenant_id = own.tenant_id AND days.day IS NOT NULL
            UNION ALL SELECT days.day FROM billing_payer y, LATERAL (VALUES (y.since), (y.until)) AS days (day)
            WHERE y.tenant_id = own.tenant_id AND days.day IS NOT NULL
        ) AS x (day), LATERAL (SELECT day_start(x.day, z.timezone) AS at) d
        WHERE d.at > own.s AND d.at < own.e AND EXISTS (
            SELECT FROM billing_billingperiod p WHERE p.tenant_id = own.tenant_id AND p.timezone = z.timezone
                AND p.start <= to_timestamp(d.at) AND p."end" > to_timestamp(d.at))
    ) b WHERE b.at > own.s AND b.at < own.e
), span AS (
    SELECT own.*, mark.at, lead(mark.at, 1, own.e) OVER (PARTITION BY own.id ORDER BY mark.at) AS until
    FROM own JOIN mark ON mark.id = own.id
)
SELECT s.account_id, s.tenant_id, s.project_id, p.timezone, s.at AS since, s.until, p.id AS period_id,
       v.id AS version_id, v.charges, row_number() OVER (ORDER BY s.at) AS span_id, NULL::int AS calendar_id, y.payer_id
FROM span s
JOIN billing_billingperiod p ON p.tenant_id = s.tenant_id
    AND p.start <= to_timestamp(s.at) AND p."end" > to_timestamp(s.at)
LEFT JOIN billing_subscription sub ON sub.tenant_id = s.tenant_id
    AND extract(epoch FROM sub.since)::bigint <= s.at
    AND (sub.until IS NULL OR extract(epoch FROM sub.until)::bigint > s.at)
LEFT JOIN LATERAL (
    SELECT v.id, v.charges FROM billing_planversion v
    WHERE v.plan_id = sub.plan_id AND v.effective_from <= local_day(s.at, p.timezone)
    ORDER BY v.effective_from DESC LIMIT 1
) v ON true
LEFT JOIN billing_payer y ON y.tenant_id = s.tenant_id AND y.since <= local_day(s.at, p.timezone)
    AND (y.until IS NULL OR y.until > local_day(s.at, p.timezone))
WHERE s.until > s.at

-- name: ANALYZE_SPANS
ANALYZE rate_span

-- name: SELECTED
-- By which attributes any price of the plans concerned selects; whether any is for one tenant alone, and whether any is
-- for hours of the week. Only that makes a difference between usage: the answers are parameters of OFFERS and of CUTS.
SELECT coalesce(bool_or(clusters <> '{}'), false) AS by_cluster, coalesce(bool_or(queues <> '{}'), false) AS by_queue,
       coalesce(bool_or(qoses <> '{}'), false) AS by_qos,
       coalesce(bool_or(priority_classes <> '{}'), false) AS by_priority_class,
       coalesce(bool_or(gpu_models <> '{}'), false) AS by_gpu_model,
       coalesce(bool_or(mig_profiles <> '{}'), false) AS by_mig_profile,
       coalesce(bool_or(states <> '{}'), false) AS by_state, coalesce(bool_or(uses <> '{}'), false) AS by_use,
       coalesce(bool_or(dimensions <> '{}'), false) AS by_dimension,
       coalesce(bool_or(tenant_id IS NOT NULL), false) AS of_one_tenant, coalesce(bool_or(hours <> '{}'), false) AS in_hours
FROM billing_price WHERE version_id IN (SELECT version_id FROM rate_span)

-- name: ANALYZE_SHAPES
ANALYZE usage_input (cluster, queue, qos, priority_class, gpu_model, mig_profile, state)

-- name: OFFERS
-- What usage costs in each span, per shape, not per record. Shapes differ in the attributes that a price selects by, and
-- in no other; dimensions of sums stand in the GPU model's place. Offers are numbered in order of time. Where prices hold in hours of the week, there is an offer for each
-- set of them that is open at once. A version that prices by use anywhere has the GPU-seconds of all of its usage told
-- apart, by an offer for each use. What the plan does not charge is offered nothing, but for GPUs.
INSERT INTO rate_offer (offer_id, account_id, meter, cluster, queue, qos, priority_class, gpu_model, mig_profile, state,
    since, until, span_id, open_id, use, service_month, resource, tenant_id, project_id, period_id, timezone, version_id,
    payer_id, price_id, unit_price, verdict, counted, second_cost, terms_id)
SELECT o.*, resource = 'gpu' OR verdict = 'charged' AS counted,
       unit_price / (CASE resource WHEN 'cpu' THEN 3600000 WHEN 'memory' THEN 3686400 WHEN 'gpu-memory' THEN 3686400
                              ELSE 3600 END)::numeric(30) AS second_cost,
       min(offer_id) OVER (PARTITION BY tenant_id, payer_id, period_id, project_id, version_id, price_id, resource,
                                        verdict) AS terms_id
FROM (
    SELECT row_number() OVER (ORDER BY s.since) AS offer_id, h.*, s.since, s.until, s.span_id, w.open_id, n.use,
           utc_month(s.since) AS service_month, r.resource,
           s.tenant_id, s.project_id, s.period_id, s.timezone, s.version_id, s.payer_id,
           CASE WHEN r.resource = ANY (s.charges) THEN c.id END AS price_id,
           CASE WHEN r.resource = ANY (s.charges) THEN c.unit_price END AS unit_price,
           CASE WHEN s.version_id IS NULL THEN 'unpriced'
                WHEN NOT r.resource = ANY (s.charges) THEN 'waived'
                WHEN c.id IS NULL THEN 'unpriced' ELSE 'charged' END AS verdict
    FROM rate_span s
    JOIN (
        SELECT DISTINCT account_id, meter, CASE WHEN %(by_cluster)s THEN cluster END AS cluster,
               CASE WHEN %(by_queue)s THEN queue END AS queue, CASE WHEN %(by_qos)s THEN qos END AS qos,
               CASE WHEN %(by_priority_class)s THEN priority_class END AS priority_class,
               CASE WHEN %(by_gpu_model)s THEN gpu_model END AS gpu_model,
               CASE WHEN %(by_mig_profile)s THEN mig_profile END AS mig_profile,
               CASE WHEN %(by_state)s THEN state END AS state
        FROM usage_input
    ) h ON h.account_id = s.account_id
    JOIN billing_anyresource r ON r.meter = h.meter AND resource_is_rated(r.resource, r.is_measure, s.charges)
    LEFT JOIN rate_open w ON %(in_hours)s AND w.calendar_id = s.calendar_id
    CROSS JOIN LATERAL (
        SELECT unnest(CASE WHEN %(by_use)s AND r.resource = 'gpu' AND EXISTS (
            SELECT 1 FROM billing_price x WHERE x.version_id = s.version_id AND x.uses <> '{}'
        ) THEN ARRAY['busy', 'idle', 'unknown'] ELSE ARRAY[NULL] END) AS use
    ) n
    LEFT JOIN LATERAL (
        SELECT c.id, c.unit_price FROM billing_price c
        WHERE c.version_id = s.version_id AND c.resource = r.resource
          AND c.valid_from <= local_day(s.since, s.timezone)
          AND (c.valid_until IS NULL OR c.valid_until > local_day(s.since, s.timezone))
          AND (NOT %(by_cluster)s OR c.clusters = '{}' OR h.cluster = ANY (c.clusters))
          AND (NOT %(by_queue)s OR c.queues = '{}' OR h.queue = ANY (c.queues))
          AND (NOT %(by_qos)s OR c.qoses = '{}' OR h.qos = ANY (c.qoses))
          AND (NOT %(by_priority_class)s OR c.priority_classes = '{}' OR h.priority_class = ANY (c.priority_classes))
          AND (NOT %(by_gpu_model)s OR c.gpu_models = '{}' OR h.gpu_model = ANY (c.gpu_models))
          AND (NOT %(by_dimension)s OR c.dimensions = '{}' OR dimensions_match(c.dimensions, h.gpu_model))
          AND (NOT %(by_mig_profile)s OR c.mig_profiles = '{}' OR h.mig_profile = ANY (c.mig_profiles))
          AND (NOT %(by_state)s OR c.states = '{}' OR h.state = ANY (c.states))
          AND (NOT %(by_use)s OR c.uses = '{}' OR n.use = ANY (c.uses))
          AND (NOT %(of_one_tenant)s OR c.tenant_id IS NULL OR c.tenant_id = s.tenant_id)
          AND (NOT %(in_hours)s OR c.hours = '{}' OR c.id = ANY (w.open))
        ORDER BY c.specificity DESC, c.position, c.id LIMIT 1
    ) c ON true
) o

-- name: ANALYZE_OFFERS
ANALYZE rate_offer (offer_id, account_id, cluster, queue, qos, priority_class, gpu_model, mig_profile, state)
