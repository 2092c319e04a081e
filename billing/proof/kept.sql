-- What is kept of months beside their records, compared with what it is kept of: of all time where `whole`, or else of
-- some months and of the billing periods that lie in them (`prove_period`). One text per place where the name is not true.

-- name: daily usage equals rated usage
-- By all that it is grouped by, as jobs have it now: a job whose state changed has left no second in the state before.
-- All jobs are joined in one go, and those of some months looked up, each by its number.
SELECT format('{tenant:%%s}, {project:%%s}, %%s of %%s: %%s kept, %%s rated', tenant_id, project_id, resource, label,
              sum(kept), sum(rated))
FROM (
    SELECT s.tenant_id, s.project_id, s.resource, s.price_id, s.share_den,
           usage_label(s."user", s.account, s.cluster, s.gpu_model, s.queue, s.qos, s.state) AS label,
           d.units AS kept, 0 AS rated
    FROM (
        SELECT * FROM billing_dailyusage WHERE %(whole)s
        UNION ALL
        SELECT d.* FROM (SELECT DISTINCT tenant_id, first_day, end_day FROM prove_period) p CROSS JOIN LATERAL (
            SELECT * FROM billing_dailyusage x
            WHERE x.tenant_id = p.tenant_id AND x.day >= p.first_day AND x.day < p.end_day OFFSET 0
        ) d WHERE NOT %(whole)s
    ) d JOIN billing_usageseries s ON s.id = d.series_id AND s.tenant_id = d.tenant_id
    UNION ALL
    SELECT r.tenant_id, r.project_id, r.resource, r.price_id, r.share_den,
           coalesce(n.label, usage_label(j."user", j.account, j.cluster, j.gpu_model, j.queue, j.qos, j.state)), 0, r.units
    FROM (
        SELECT tenant_id, record_id, project_id, resource, price_id, share_den, sum(units::numeric * share_num) AS units
        FROM billing_ratedusage WHERE (resource = 'gpu' OR verdict = 'charged')
          AND (%(whole)s OR service_month = ANY (%(services)s::date[]) AND period_id IN (SELECT period_id FROM prove_period))
        GROUP BY tenant_id, record_id, project_id, resource, price_id, share_den HAVING sum(units * share_num) <> 0
    ) r LEFT JOIN billing_ratedjob j ON %(whole)s AND j.record_id = r.record_id AND j.tenant_id = r.tenant_id
    LEFT JOIN LATERAL (
        SELECT usage_label(x."user", x.account, x.cluster, x.gpu_model, x.queue, x.qos, x.state) AS label
        FROM billing_ratedjob x WHERE NOT %(whole)s AND x.record_id = r.record_id AND x.tenant_id = r.tenant_id OFFSET 0
    ) n ON true
) both_sides
GROUP BY tenant_id, project_id, resource, price_id, share_den, label HAVING sum(kept) <> sum(rated)

-- name: day totals equal daily usage
SELECT format('{tenant:%%s} on %%s, {project:%%s}, %%s: %%s kept, %%s used', tenant_id, day, project_id, resource, sum(kept),
              sum(used))
FROM (
    SELECT tenant_id, day, project_id, gpu_model, resource, price_id, share_den, units AS kept, 0 AS used
    FROM billing_daytotal t WHERE %(whole)s OR date_trunc('month', t.day)::date = ANY (%(months)s::date[])
    UNION ALL
    SELECT d.tenant_id, d.day, s.project_id, s.gpu_model, s.resource, s.price_id, s.share_den, 0, d.units
    FROM (
        SELECT * FROM billing_dailyusage WHERE %(whole)s
        UNION ALL
        SELECT d.* FROM tenants_tenant t CROSS JOIN unnest(%(months)s::date[]) AS m CROSS JOIN LATERAL (
            SELECT * FROM billing_dailyusage x
            WHERE x.tenant_id = t.id AND x.day >= m AND x.day < (m + interval '1 month')::date OFFSET 0
        ) d WHERE NOT %(whole)s
    ) d JOIN billing_usageseries s ON s.id = d.series_id AND s.tenant_id = d.tenant_id
) both_sides
GROUP BY tenant_id, day, project_id, gpu_model, resource, price_id, share_den HAVING sum(kept) <> sum(used)

-- name: what is kept of the jobs of a period is what they are
-- By the price that they have, 0 for several or none: as many started as are counted; who ran in it and is not kept costs
-- no more than the floor, above which as many are kept as a page shows.
SELECT format('{period:%%s}, %%s: %%s of its jobs started in it, %%s counted; of its most expensive %%s missing, %%s wrong',
              period_id, CASE price_id WHEN 0 THEN 'no price alone' ELSE format('{price:%%s}', price_id) END,
              count(*) FILTER (WHERE began), coalesce(max(counted), 0),
              greatest(least(8, count(*) FILTER (WHERE ran)) - count(*) FILTER (WHERE kept AND above),
                       count(*) FILTER (WHERE above AND NOT kept)),
              count(*) FILTER (WHERE kept AND NOT ran))
FROM (
    SELECT coalesce(r.period_id, t.period_id, f.period_id) AS period_id,
           coalesce(r.price_id, t.price_id, f.price_id) AS price_id, r.began, f.started AS counted,
           t.record_id IS NOT NULL AS kept, r.record_id IS NOT NULL AS ran,
           r.record_id IS NOT NULL AND (f.floor_id IS NULL OR (r.cost_units, r.gpu_units, r.record_id)
                                                             > (f.floor_cost, f.floor_units, f.floor_id)) AS above
    FROM (
        SELECT j.tenant_id, j.id AS period_id, coalesce(j.cost_price_id, 0) AS price_id, j.record_id, j.cost_units,
               j.gpu_units, j.start <= to_timestamp(j.started) AS began
        FROM (
            SELECT j.*, b.id, b.start FROM billing_ratedjob j CROSS JOIN LATERAL (
                SELECT * FROM billing_billingperiod p
                WHERE p.tenant_id = j.tenant_id AND p."end" > to_timestamp(j.started)
                  AND p.start <= to_timestamp(greatest(coalesce(j.ended, j.seen_until, j.started) - 1, j.started))
                  AND p.start <= to_timestamp(j.started + job_look_back()) OFFSET 0
            ) b WHERE %(whole)s AND j.started IS NOT NULL AND j.meter = ''
            UNION ALL
            SELECT j.*, p.period_id, to_timestamp(p.since) FROM prove_period p CROSS JOIN LATERAL (
                SELECT * FROM billing_ratedjob x
                WHERE x.tenant_id = p.tenant_id AND x.meter = '' AND x.started IS NOT NULL AND x.shown_at < p.until
                  AND x.shown_at >= p.since - job_look_back()
                  AND p.since <= greatest(coalesce(x.ended, x.seen_until, x.started) - 1, x.started) OFFSET 0
            ) j WHERE NOT %(whole)s
        ) j
    ) r
    FULL JOIN (
        SELECT * FROM billing_periodtopjob WHERE %(whole)s OR period_id IN (SELECT period_id FROM prove_period)
    ) t
      ON (t.tenant_id, t.period_id, t.price_id, t.record_id) = (r.tenant_id, r.period_id, r.price_id, r.record_id)
    FULL JOIN (
        SELECT * FROM billing_periodjobs WHERE %(whole)s OR period_id IN (SELECT period_id FROM prove_period)
    ) f
      ON (f.tenant_id, f.period_id, f.price_id)
       = (coalesce(r.tenant_id, t.tenant_id), coalesce(r.period_id, t.period_id), coalesce(r.price_id, t.price_id))
) job GROUP BY period_id, price_id
HAVING count(*) FILTER (WHERE began) <> coalesce(max(counted), 0) OR bool_or(above AND NOT kept) OR bool_or(kept AND NOT ran)
    OR count(*) FILTER (WHERE kept AND above) < least(8, count(*) FILTER (WHERE ran))

