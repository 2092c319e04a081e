-- name: RUNNING
-- What the running jobs of each scope use in a second, and for how many seconds of a day their time limits let them; and at
-- which price.
SELECT w.want, r.record_id, p.id, p.name, c.price_id, c.resource, resource_parts(c.resource, r.share_den) AS parts,
       resource_amount(c.resource, r.gpus, r.cpu_milli, r.memory_mib, r.gpu_memory_mib, r.billing)
           * CASE c.resource WHEN 'gpu' THEN r.share_num ELSE 1 END AS a_second,
       CASE WHEN o.time_limit IS NULL THEN %(most)s
            ELSE least(greatest(j.started + j.suspended + o.time_limit - %(second)s, 0), %(most)s) END AS seconds,
       g.meter, g.unit_price, g.currency, g.by_total, x.price_id IS NOT NULL
FROM unnest(%(wants)s::int[], %(tenants)s::bigint[], %(projects)s::bigint[], %(users)s::text[], %(accounts)s::text[],
            %(clusters)s::text[], %(queues)s::text[], %(qoses)s::text[], %(gpu_models)s::text[])
     AS w (want, tenant_id, project_id, "user", account, cluster, queue, qos, gpu_model)
JOIN billing_openrun r ON r.tenant_id = w.tenant_id
 AND (w.project_id IS NULL OR r.project_id = w.project_id) AND (w."user" IS NULL OR r."user" = w."user")
 AND (w.account IS NULL OR r.account = w.account) AND (w.cluster IS NULL OR r.cluster = w.cluster)
 AND (w.queue IS NULL OR r.queue = w.queue) AND (w.qos IS NULL OR r.qos = w.qos)
 AND (w.gpu_model IS NULL OR r.gpu_model = w.gpu_model)
 AND r.seen_until >= coalesce(r.read_until, r.seen_until) - %(unseen)s
JOIN billing_ratedjob j ON j.record_id = r.record_id AND j.tenant_id = r.tenant_id
JOIN tenants_project p ON p.id = r.project_id
LEFT JOIN billing_openjob o ON o.record_id = r.record_id
CROSS JOIN LATERAL billing_terms_of(r.tenant_id, r.record_id, r.seen_until) c
LEFT JOIN billing_pricetag g ON g.price_id = c.price_id LEFT JOIN billing_walletprice x ON x.price_id = c.price_id
ORDER BY 1, 2, 6;
