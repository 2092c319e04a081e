-- On what usage of accounts is rated in a stretch of time.

-- name: REACH
-- A run of each account that lasts as long, of no shape.
INSERT INTO usage_input
SELECT 0 AS record_id, 1 AS revision, a.cluster_id, '' AS cluster, a.id AS account_id, a.name AS account, '' AS job_id,
       '' AS name, '' AS "user", '' AS queue, '' AS qos, '' AS priority_class, 0 AS gpus, '' AS gpu_model,
       '' AS mig_profile, 1 AS share_num, 1 AS share_den, 0 AS cpu_milli, 0 AS memory_mib, 0 AS nodes, '' AS state,
       NULL::bigint AS submitted, %(since)s::bigint AS started, %(until)s::bigint AS ended, NULL::bigint AS seen_until,
       %(until)s::bigint AS finish, 0 AS suspended, 0 AS gpu_memory_mib, 0 AS billing, '' AS meter,
       NULL::bigint AS quantity, false AS fresh
FROM clusters_account a WHERE a.id = ANY (%(accounts)s)

-- name: DIGEST
-- Spans with the same terms are one: a border of a plan that the tenant came to later changes nothing by itself. Of prices
-- what selects, with their days as far as they lie in the stretch.
WITH span AS (
    SELECT *, (lag(until) OVER w = since AND lag(terms) OVER w = terms) IS NOT TRUE AS begins
    FROM (
        SELECT account_id, since, until, concat_ws(' ', tenant_id, project_id, timezone, period_id, coalesce(version_id, 0),
                                                   coalesce(payer_id, 0), coalesce(charges::text, 'none')) AS terms
        FROM rate_span
    ) s WINDOW w AS (PARTITION BY account_id ORDER BY since)
), island AS (
    SELECT account_id, terms, min(since) AS since, max(until) AS until
    FROM (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY account_id ORDER BY since) AS place FROM span) n
    GROUP BY account_id, terms, place
), price AS (
    SELECT c.id, (to_jsonb(c) - '{valid_from,valid_until,position,unit_price,model,scale,corrected_through}'::text[])::text
           || greatest(c.valid_from, d.first)::text || least(coalesce(c.valid_until, 'infinity'), d.last)::text AS text,
           row_number() OVER (PARTITION BY c.version_id ORDER BY c.position, c.id) AS place
    FROM billing_price c CROSS JOIN (
        SELECT (to_timestamp(%(since)s) AT TIME ZONE 'UTC')::date - 2 AS first,
               (to_timestamp(%(until)s) AT TIME ZONE 'UTC')::date + 2 AS last
    ) d
    WHERE c.version_id IN (SELECT version_id FROM rate_span)
      AND c.valid_from < d.last AND coalesce(c.valid_until, 'infinity') > d.first
)
SELECT md5(concat_ws(E'\n',
    (SELECT string_agg(concat_ws(' ', account_id, since, until, terms), E'\n' ORDER BY account_id, since) FROM island),
    (SELECT string_agg(concat_ws(' ', id, place, text), E'\n' ORDER BY id) FROM price)))
