-- What quotas count: the use of each day that rating keeps, and what runs have used since they were last rated.
--
-- A `want` is what is asked for: the use of a span of days that a scope matches. Columns of a scope that are null match
-- anything. What a day used is kept by rating's own deltas, so these sums are the counters: none is reset by anybody.

-- name: COUNTED
-- By want, project, price and resource: what is rated; what runs that go on have used since they were last rated, by the
-- terms of their last rated second; and what these use in a second, where the span has not ended. With the price.
--
-- A span is summed once, whatever many wants are of it. `of_totals`: from the totals of days, which know projects and GPU
-- models alone, and are as few however many jobs there are. Seconds that a cluster has not been read for are counted on for
-- one pull at most. `by_second`: a span of seconds, the first day of a rolling window, from the rated rows of the jobs that
-- ran in it, each cut as a day is; by billing period.
WITH span AS MATERIALIZED (
    SELECT * FROM unnest(%(spans)s::int[], %(span_tenants)s::bigint[], %(first_days)s::date[], %(end_days)s::date[],
                         %(of_totals)s::boolean[], %(since)s::bigint[], %(until)s::bigint[], %(by_second)s::boolean[])
        AS s (span, tenant_id, first_day, end_day, of_totals, since, until, by_second)
), want AS MATERIALIZED (
    SELECT * FROM unnest(%(wants)s::int[], %(want_spans)s::int[], %(projects)s::bigint[], %(users)s::text[],
                         %(accounts)s::text[], %(clusters)s::text[], %(queues)s::text[], %(qoses)s::text[],
                         %(gpu_models)s::text[])
        AS w (want, span, project_id, "user", account, cluster, queue, qos, gpu_model)
), used AS MATERIALIZED (
    SELECT s.span, s.tenant_id, d.series_id, sum(d.units) AS units
    FROM span s CROSS JOIN LATERAL (
        SELECT series_id, units FROM billing_dailyusage d
        WHERE NOT s.of_totals AND d.tenant_id = s.tenant_id AND d.day >= s.first_day AND d.day < s.end_day OFFSET 0
    ) d GROUP BY 1, 2, 3 HAVING sum(d.units) <> 0
), labeled AS MATERIALIZED (
    SELECT u.span, g.project_id, g.price_id, g.resource, g.share_den, g.gpu_model, g."user", g.account, g.cluster, g.queue,
           g.qos, u.units
    FROM used u CROSS JOIN LATERAL (
        SELECT * FROM billing_usageseries g WHERE g.id = u.series_id AND g.tenant_id = u.tenant_id OFFSET 0
    ) g
    UNION ALL
    SELECT s.span, t.project_id, t.price_id, t.resource, t.share_den, t.gpu_model, '', '', '', '', '', sum(t.units)
    FROM span s CROSS JOIN LATERAL (
        SELECT * FROM billing_daytotal t
        WHERE s.of_totals AND t.tenant_id = s.tenant_id AND t.day >= s.first_day AND t.day < s.end_day OFFSET 0
    ) t GROUP BY 1, 2, 3, 4, 5, 6
), rated AS MATERIALIZED (
    SELECT w.want, NULL::bigint AS period_id, l.project_id, l.price_id, l.resource, l.share_den AS parts,
           sum(l.units) AS rated, 0::numeric AS grown, 0::numeric AS a_second
    FROM want w JOIN labeled l ON l.span = w.span
     AND (w.project_id IS NULL OR l.project_id = w.project_id) AND (w."user" IS NULL OR l."user" = w."user")
     AND (w.account IS NULL OR l.account = w.account) AND (w.cluster IS NULL OR l.cluster = w.cluster)
     AND (w.queue IS NULL OR l.queue = w.queue) AND (w.qos IS NULL OR l.qos = w.qos)
     AND (w.gpu_model IS NULL OR l.gpu_model = w.gpu_model)
    GROUP BY 1, 2, 3, 4, 5, 6 HAVING sum(l.units) <> 0
), run AS MATERIALIZED (
    SELECT r.*, least(greatest(r.read_until, r.seen_until) + r.ahead, %(second)s) AS now
    FROM (SELECT DISTINCT tenant_id FROM span) t CROSS JOIN LATERAL (
        SELECT * FROM billing_openrun o
        WHERE o.tenant_id = t.tenant_id AND o.seen_until >= coalesce(o.read_until, o.seen_until) - %(unseen)s
    ) r
), term AS MATERIALIZED (
    SELECT r.*, c.resource, c.price_id, resource_parts(c.resource, r.share_den) AS parts,
           resource_amount(c.resource, r.gpus, r.cpu_milli, r.memory_mib, r.gpu_memory_mib, r.billing)
           * CASE c.resource WHEN 'gpu' THEN r.share_num ELSE 1 END AS amount
    FROM run r CROSS JOIN LATERAL billing_terms_of(r.tenant_id, r.record_id, r.seen_until) c
), grown AS MATERIALIZED (
    SELECT w.want, NULL::bigint AS period_id, t.project_id, t.price_id, t.resource, t.parts, 0::numeric AS rated,
           sum(t.amount * greatest(least(t.now, s.until) - greatest(t.seen_until, s.since), 0)) AS grown,
           coalesce(sum(t.amount) FILTER (WHERE s.until > %(second)s), 0) AS a_second
    FROM want w JOIN span s ON s.span = w.span JOIN term t ON t.tenant_id = s.tenant_id
     AND (w.project_id IS NULL OR t.project_id = w.project_id) AND (w."user" IS NULL OR t."user" = w."user")
     AND (w.account IS NULL OR t.account = w.account) AND (w.cluster IS NULL OR t.cluster = w.cluster)
     AND (w.queue IS NULL OR t.queue = w.queue) AND (w.qos IS NULL OR t.qos = w.qos)
     AND (w.gpu_model IS NULL OR t.gpu_model = w.gpu_model)
    WHERE s.until > t.seen_until AND NOT s.by_second
    GROUP BY 1, 2, 3, 4, 5, 6
), cut AS MATERIALIZED (
    SELECT w.want, r.period_id, r.project_id, r.price_id, r.resource, r.share_den AS parts,
           sum(units_within(r.units, r.service_from, r.service_to, s.since, s.until)::numeric * r.share_num) AS rated,
           0::numeric AS grown, 0::numeric AS a_second
    FROM want w JOIN span s ON s.span = w.span AND s.by_second CROSS JOIN LATERAL (
        SELECT record_id FROM billing_ratedjob j
        WHERE j.tenant_id = s.tenant_id AND j.shown_at < s.until AND (j.ended IS NULL OR j.ended > s.since)
          AND (w."user" IS NULL OR j."user" = w."user") AND (w.account IS NULL OR j.account = w.account)
          AND (w.cluster IS NULL OR j.cluster = w.cluster) AND (w.queue IS NULL OR j.queue = w.queue)
          AND (w.qos IS NULL OR j.qos = w.qos) AND (w.gpu_model IS NULL OR j.gpu_model = w.gpu_model)
    ) j CROSS JOIN LATERAL (
        SELECT * FROM billing_ratedusage x
        WHERE x.record_id = j.record_id AND x.tenant_id = s.tenant_id
          AND x.service_month >= utc_month(s.since - %(longest)s) AND x.service_month <= utc_month(s.until - 1)
          AND x.service_from < s.until AND x.service_to > s.since AND (x.resource = 'gpu' OR x.verdict = 'charged')
        OFFSET 0
    ) r
    WHERE w.project_id IS NULL OR r.project_id = w.project_id
    GROUP BY 1, 2, 3, 4, 5, 6
)
SELECT c.want, c.period_id, p.id, p.name, c.price_id, c.resource, c.parts, c.rated, c.grown, c.a_second,
       g.meter, g.unit_price, g.currency, g.by_total, x.price_id IS NOT NULL
FROM (TABLE rated UNION ALL TABLE grown UNION ALL TABLE cut) c JOIN tenants_project p ON p.id = c.project_id
LEFT JOIN billing_pricetag g ON g.price_id = c.price_id LEFT JOIN billing_walletprice x ON x.price_id = c.price_id
ORDER BY 1, 2, 3, 5, 6, 7;

-- name: PRICES
-- With whether wallets pay what they charge.
SELECT g.price_id, g.meter, g.unit_price, g.currency, g.by_total, w.price_id IS NOT NULL
FROM billing_pricetag g LEFT JOIN billing_walletprice w USING (price_id) WHERE g.price_id = ANY (%(prices)s);

-- name: TENANTS
-- Of each tenant the first day on which it used anything; whether prices of single units do not tell all that it is charged,
-- as where somebody pays for it, or it for another; and in a row each the clusters on which it owns accounts at the
-- moment, up to when each is read, and how often it is pulled.
SELECT DISTINCT t.tenant_id, x.begun, x.by_statement, c.name, c.complete_through, n.every
FROM unnest(%(tenants)s::bigint[]) AS t (tenant_id) CROSS JOIN LATERAL (
    SELECT (SELECT min(d.day) FROM billing_daytotal d WHERE d.tenant_id = t.tenant_id) AS begun,
           EXISTS (SELECT FROM billing_chargedbytotal b WHERE b.tenant_id = t.tenant_id)
           OR EXISTS (SELECT FROM billing_payer y WHERE y.tenant_id = t.tenant_id OR y.payer_id = t.tenant_id) AS by_statement
) x LEFT JOIN tenants_ownership o ON o.tenant_id = t.tenant_id AND (o.since IS NULL OR o.since <= %(moment)s)
  AND (o.until IS NULL OR o.until > %(moment)s)
LEFT JOIN clusters_account a ON a.id = o.account_id LEFT JOIN clusters_cluster c ON c.id = a.cluster_id
LEFT JOIN clusters_pullinterval n ON n.cluster_id = c.id;

-- name: API_VERSIONS
-- Of the clusters of Slurm on which a tenant owns accounts at the moment, over which version each is read.
SELECT DISTINCT c.name, n.api_version
FROM tenants_ownership o JOIN clusters_account a ON a.id = o.account_id JOIN clusters_cluster c ON c.id = a.cluster_id
JOIN clusters_pullinterval n ON n.cluster_id = c.id
WHERE o.tenant_id = %(tenant)s AND c.kind = 'slurm' AND (o.since IS NULL OR o.since <= %(moment)s)
  AND (o.until IS NULL OR o.until > %(moment)s) ORDER BY 1;

-- name: CREDITS
-- Credit that was given to tenants, in whole smallest units: gifts to their wallets, and credit notes; where it is asked
-- for also what was paid into wallets, less what went back. And in rows without a want, by billing period what its close
-- has billed, or given back by credit notes, of earlier periods; and when these ended.
SELECT w.want, NULL::bigint, NULL::timestamptz, NULL, coalesce((
    SELECT sum(g.amount) FROM billing_walletgrant g JOIN billing_wallet x ON x.id = g.wallet_id
    WHERE x.tenant_id = w.tenant_id AND x.unit = w.unit AND g.kind = 'gift'
      AND g.granted_at >= w.since AND g.granted_at < w.until
), 0) + coalesce((
    SELECT -sum(e.amount) FROM billing_wallet x JOIN billing_walletentry e ON e.wallet_id = x.id
    JOIN billing_walletgrant g ON g.id = e.grant_id
    WHERE w.with_top_ups AND x.tenant_id = w.tenant_id AND x.unit = w.unit AND e.side = 'granted'
      AND g.kind = 'top-up' AND e.at >= w.since AND e.at < w.until
), 0) + coalesce((
    SELECT -sum(i.subtotal) FROM billing_invoice i
    WHERE i.tenant_id = w.tenant_id AND i.currency = w.unit AND i.state = 'issued' AND i.kind = 'credit-note'
      -- By hand: what a close gives back for usage that went down, the usage itself says already.
      AND i.rated_through = 0 AND NOT i.terms ? 'closed_period'
      AND i.issued_on >= w.first_day AND i.issued_on < w.end_day
), 0)
FROM unnest(%(wants)s::int[], %(tenants)s::bigint[], %(units)s::text[], %(with_top_ups)s::bool[],
            %(since)s::timestamptz[], %(until)s::timestamptz[], %(first_days)s::date[], %(end_days)s::date[])
     AS w (want, tenant_id, unit, with_top_ups, since, until, first_day, end_day)
UNION ALL
SELECT NULL, p.id, s."end", i.currency, sum(l.amount)
FROM billing_billingperiod p
JOIN billing_invoice i ON i.tenant_id = p.tenant_id AND i.state = 'issued'
 AND (i.period_id = p.id AND i.kind <> 'credit-note' OR (i.terms ->> 'closed_period')::bigint = p.id)
JOIN billing_invoiceline l ON l.invoice_id = i.id AND l.correction AND l.service_period_id <> p.id
JOIN billing_billingperiod s ON s.id = l.service_period_id
WHERE p.id = ANY (%(periods)s::bigint[]) GROUP BY 2, 3, 4;
