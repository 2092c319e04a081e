-- Merging a staged batch into the usage tables.
--
-- What makes a revision when it changes: account, shape, start, end, state, suspension. What only describes a run (job_id,
-- name, node_list, requested, time_limit, submitted, eligible, exit_code) is written in place, without a revision.

-- name: COPY_STAGE
COPY usage_stage (account_id, source_key, job_id, name, "user", queue, qos, priority_class, gpu_model, mig_profile,
    node_list, requested, state, exit_code, turn, gpus, share_num, share_den, cpu_milli, memory_mib, nodes, time_limit,
    submitted, eligible, started, ended, seen_until, suspended, gpu_memory_mib, billing, meter, quantity) FROM STDIN

-- name: ANALYZE_STAGE
-- Of two columns only: of all 30 it takes as long as merging the batch. The others are never joined by.
ANALYZE usage_stage (turn, source_key)

-- name: HOLD_ACCOUNTS
-- Against being deleted before the batch is committed; those that are missing are added, and held by that.
SELECT name, id FROM clusters_account
WHERE cluster_id = %(cluster)s AND name = ANY (%(names)s) ORDER BY id FOR KEY SHARE

-- name: ADD_ACCOUNTS
INSERT INTO clusters_account (cluster_id, name)
SELECT %(cluster)s, n.name FROM unnest(%(names)s::text[]) AS n (name) ORDER BY 2
ON CONFLICT DO NOTHING

-- name: MONTHS
-- Those of the batch, each with the partition of its records. A key that says no month has that of its record; if there is
-- none, that of its submission or start as they are told now: it stays there.
WITH said AS (
    SELECT DISTINCT ON (source_key) source_key, coalesce(submitted, started) AS since FROM usage_stage
    WHERE key_month IS NULL ORDER BY source_key, turn
), held AS (
    UPDATE usage_stage s SET held_month = coalesce(
        (SELECT k.record_id >> 40 FROM clusters_usagekey k
         WHERE k.cluster_id = %(cluster)s AND k.source_key = n.source_key),
        month_number(CASE WHEN n.since BETWEEN 978307200 AND 3976214399 THEN n.since
                          ELSE extract(epoch FROM %(moment)s::timestamptz)::bigint END))
    FROM said n WHERE n.source_key = s.source_key
    RETURNING held_month, s.ended
), month AS (
    SELECT month, bool_or(ended IS NULL) AS grows FROM (
        SELECT key_month AS month, ended FROM usage_stage WHERE key_month IS NOT NULL
        UNION ALL SELECT held_month, ended FROM held
    ) each GROUP BY month ORDER BY month
)
SELECT month, clusters_ensure_records(month, grows) FROM month

-- name: DROP_REPEATED_HISTORY
-- Where the last word on a key (an end before an open row) is what the record says, so was what led to it. Of one month,
-- from its partition, as MATCH.
DELETE FROM usage_stage s USING (
    SELECT DISTINCT ON (source_key) * FROM usage_stage WHERE coalesce(key_month, held_month) = %(month)s
    ORDER BY source_key, (ended IS NULL), turn DESC
) n
CROSS JOIN LATERAL (
    SELECT * FROM clusters_usagerecord r
    WHERE r.cluster_id = %(cluster)s AND r.source_key = n.source_key LIMIT 1
) u
WHERE s.source_key = n.source_key AND s.turn < n.turn
  AND (u.account_id, u."user", u.queue, u.qos, u.priority_class, u.gpus, u.gpu_model, u.mig_profile, u.share_num,
       u.share_den, u.cpu_milli, u.memory_mib, u.nodes, u.started, u.ended, u.suspended, u.state, u.gpu_memory_mib,
       u.billing, u.meter, u.quantity, u.seen_until)
      IS NOT DISTINCT FROM
      (n.account_id, n."user", n.queue, n.qos, n.priority_class, n.gpus, n.gpu_model, n.mig_profile, n.share_num,
       n.share_den, n.cpu_milli, n.memory_mib, n.nodes, n.started, n.ended, n.suspended, n.state, n.gpu_memory_mib,
       n.billing, n.meter, n.quantity, CASE WHEN n.ended IS NULL THEN n.seen_until END)

-- name: FORGET
DELETE FROM usage_match

-- name: MATCH
-- What is staged of one month, and what its partition, which is sent in the table's place, has of it: of all partitions
-- some plan would look into the wrong index, or into each.
--
-- Stale is older news than the record's: an open row of a closed record, a waiting row of a started one, an earlier sight
-- of one that still runs. While a run goes on, its suspended seconds grow with it, which is no news by itself. It is seen
-- anew only as it passes one of `marks`, seconds of the hour: each sight writes its record, job, totals and rated stretch
-- again, and a thousand runs polled every five minutes have three hundred thousand sights a day. One that had vanished is
-- back with its first sight.
INSERT INTO usage_match (source_key, account_id, record_id, verdict, revision)
SELECT m.source_key, m.account_id,
       CASE m.verdict WHEN 'new' THEN %(month)s::bigint << 40 | nextval('clusters_usagerecord_id_seq') ELSE m.record_id END, m.verdict,
       CASE m.verdict WHEN 'new' THEN 1 WHEN 'revised' THEN m.revision + 1 ELSE m.revision END
FROM (
    SELECT s.source_key, s.account_id, u.id AS record_id, u.revision,
           CASE WHEN u.id IS NULL THEN 'new'
                WHEN (u.ended IS NOT NULL AND s.ended IS NULL)
                     OR (u.started IS NOT NULL AND s.started IS NULL)
                     OR (u.ended IS NULL AND s.ended IS NULL AND u.seen_until > coalesce(s.seen_until, 0)) THEN 'stale'
                WHEN (u.account_id, u."user", u.queue, u.qos, u.priority_class, u.gpus, u.gpu_model, u.mig_profile,
                      u.share_num, u.share_den, u.cpu_milli, u.memory_mib, u.nodes, u.started, u.ended, u.suspended,
                      u.state, u.gpu_memory_mib, u.billing, u.meter, u.quantity)
                     IS DISTINCT FROM
                     (s.account_id, s."user", s.queue, s.qos, s.priority_class, s.gpus, s.gpu_model, s.mig_profile,
                      s.share_num, s.share_den, s.cpu_milli, s.memory_mib, s.nodes, s.started, s.ended,
                      CASE WHEN u.ended IS NULL AND s.ended IS NULL THEN u.suspended ELSE s.suspended END,
                      s.state, s.gpu_memory_mib, s.billing, s.meter, s.quantity) THEN 'revised'
                WHEN (u.job_id, u.name, u.node_list, u.requested, u.time_limit, u.submitted, u.eligible, u.exit_code)
                     IS DISTINCT FROM
                     (s.job_id, s.name, s.node_list, s.requested, s.time_limit, s.submitted, s.eligible, s.exit_code)
                     THEN 'described'
                WHEN u.seen_until IS DISTINCT FROM s.seen_until AND (
                     %(marks)s::int[] IS NULL OR u.seen_until IS NULL
                     OR EXISTS (SELECT 1 FROM unnest(%(marks)s::int[]) AS m (second)
                                WHERE (s.seen_until - m.second) / 3600 > (u.seen_until - m.second) / 3600)
                     OR EXISTS (SELECT 1 FROM clusters_vanishedrun v WHERE v.record_id = u.id)) THEN 'seen'
                ELSE 'same' END AS verdict
    FROM usage_stage s
    LEFT JOIN LATERAL (  -- one look into the unique index per row, whatever the statistics say of a young table
        SELECT * FROM clusters_usagerecord r
        WHERE r.cluster_id = %(cluster)s AND r.source_key = s.source_key LIMIT 1
    ) u ON true
    WHERE s.turn = %(turn)s AND coalesce(s.key_month, s.held_month) = %(month)s
) m ORDER BY m.source_key

-- name: VERDICTS
SELECT verdict, count(*) FROM usage_match GROUP BY verdict

-- name: ANALYZE_MATCH
-- What follows joins by `verdict`: guessed to be one row in two hundred, five thousand of one kind would be looked for
-- one by one in all five thousand.
ANALYZE usage_match (source_key, record_id, verdict)

-- name: INSERT_NEW
WITH added AS (
    INSERT INTO clusters_usagerecord (id, cluster_id, account_id, revision, last_seen, source_key, job_id, name, "user",
        queue, qos, priority_class, gpus, gpu_model, mig_profile, share_num, share_den, cpu_milli, memory_mib, nodes,
        node_list, requested, time_limit, submitted, eligible, started, ended, seen_until, suspended, gpu_memory_mib,
        billing, meter, quantity, state, exit_code)
    SELECT m.record_id, %(cluster)s, m.account_id, m.revision, %(moment)s, s.source_key, s.job_id, s.name, s."user",
           s.queue, s.qos, s.priority_class, s.gpus, s.gpu_model, s.mig_profile, s.share_num, s.share_den, s.cpu_milli,
           s.memory_mib, s.nodes, s.node_list, s.requested, s.time_limit, s.submitted, s.eligible, s.started, s.ended,
           s.seen_until, s.suspended, s.gpu_memory_mib, s.billing, s.meter,
           s.quantity, s.state, s.exit_code
    FROM usage_stage s JOIN usage_match m ON m.source_key = s.source_key AND m.verdict = 'new'
    WHERE s.turn = %(turn)s ORDER BY m.record_id
    RETURNING *
)
INSERT INTO usage_input
SELECT u.id, u.revision, u.cluster_id, %(name)s, u.account_id, a.name, u.job_id, u.name, u."user", u.queue, u.qos,
       u.priority_class, u.gpus, u.gpu_model, u.mig_profile, u.share_num, u.share_den, u.cpu_milli, u.memory_mib,
       u.nodes, u.state, u.submitted, u.started, u.ended, u.seen_until,
       usage_finish(u.meter, u.started, u.ended, u.seen_until), u.suspended, u.gpu_memory_mib, u.billing, u.meter,
       u.quantity, true
FROM added u JOIN clusters_account a ON a.id = u.account_id

-- name: ENSURE_MONTH
SELECT clusters_ensure_month((%(moment)s::timestamptz AT TIME ZONE 'UTC')::date)

-- name: KEEP_OLD
-- The revisions that are superseded.
INSERT INTO clusters_usagerevision (record_id, account_id, revision, superseded_at, superseded_month, source_key, job_id,
    name, "user", queue, qos, priority_class, gpus, gpu_model, mig_profile, share_num, share_den, cpu_milli, memory_mib,
    nodes, node_list, requested, time_limit, submitted, eligible, started, ended, seen_until, suspended, gpu_memory_mib,
    billing, meter, quantity, state, exit_code)
SELECT u.id, u.account_id, u.revision, %(moment)s,
       date_trunc('month', %(moment)s::timestamptz AT TIME ZONE 'UTC')::date, u.source_key, u.job_id,
       u.name, u."user", u.queue, u.qos, u.priority_class, u.gpus, u.gpu_model, u.mig_profile, u.share_num, u.share_den,
       u.cpu_milli, u.memory_mib, u.nodes, u.node_list, u.requested, u.time_limit, u.submitted, u.eligible, u.started,
       u.ended, u.seen_until, u.suspended, u.gpu_memory_mib, u.billing, u.meter,
       u.quantity, u.state, u.exit_code
FROM usage_match m
CROSS JOIN LATERAL (SELECT * FROM clusters_usagerecord r WHERE r.id = m.record_id OFFSET 0) u
WHERE m.verdict = 'revised'

-- name: REWRITE
-- The records that are revised, described anew or seen again: what did not change is written as it was. They are reached
-- by their key, one by one: joined to an UPDATE, a table that was vacuumed while it was young, and so is taken for
-- empty, was read whole.
WITH changed AS (
    INSERT INTO clusters_usagerecord AS u (id, cluster_id, account_id, revision, last_seen, source_key, job_id, name, "user",
        queue, qos, priority_class, gpus, gpu_model, mig_profile, share_num, share_den, cpu_milli, memory_mib, nodes,
        node_list, requested, time_limit, submitted, eligible, started, ended, seen_until, suspended, gpu_memory_mib,
        billing, meter, quantity, state, exit_code)
    SELECT m.record_id, %(cluster)s, m.account_id, m.revision, %(moment)s, s.source_key, s.job_id, s.name, s."user",
           s.queue, s.qos, s.priority_class, s.gpus, s.gpu_model, s.mig_profile, s.share_num, s.share_den, s.cpu_milli,
           s.memory_mib, s.nodes, s.node_list, s.requested, s.time_limit, s.submitted, s.eligible, s.started, s.ended,
           s.seen_until, s.suspended, s.gpu_memory_mib, s.billing, s.meter,
           s.quantity, s.state, s.exit_code
    FROM usage_stage s
    JOIN usage_match m ON m.source_key = s.source_key AND m.verdict IN ('revised', 'described', 'seen')
    WHERE s.turn = %(turn)s
    ON CONFLICT (id) DO UPDATE
    SET last_seen = excluded.last_seen, revision = excluded.revision, account_id = excluded.account_id,
        job_id = excluded.job_id, name = excluded.name,
        -- A row that is no news leaves the name as it is: it may have been erased since it was compared.
        "user" = CASE WHEN excluded.revision > u.revision THEN excluded."user" ELSE u."user" END, queue = excluded.queue,
        qos = excluded.qos, priority_class = excluded.priority_class, gpus = excluded.gpus,
        gpu_model = excluded.gpu_model, mig_profile = excluded.mig_profile, share_num = excluded.share_num,
        share_den = excluded.share_den, cpu_milli = excluded.cpu_milli, memory_mib = excluded.memory_mib,
        nodes = excluded.nodes, node_list = excluded.node_list, requested = excluded.requested,
        time_limit = excluded.time_limit, submitted = excluded.submitted, eligible = excluded.eligible,
        started = excluded.started, ended = excluded.ended, seen_until = excluded.seen_until,
        suspended = excluded.suspended, gpu_memory_mib = excluded.gpu_memory_mib, billing = excluded.billing,
        meter = excluded.meter, quantity = excluded.quantity, state = excluded.state, exit_code = excluded.exit_code
    RETURNING u.id
)
INSERT INTO usage_touched (record_id) SELECT id FROM changed

-- name: RESOLVE_QUARANTINE
-- By news only: an old snapshot read again says nothing about a newer row that could not be read.
UPDATE clusters_quarantined q SET resolved_at = %(moment)s, resolution = 'A good row of the same key was read.'
FROM usage_match m
WHERE m.verdict IN ('new', 'revised')
  AND q.cluster_id = %(cluster)s AND q.resolved_at IS NULL AND q.source_key <> '' AND q.source_key = m.source_key

-- name: QUARANTINE
INSERT INTO clusters_quarantined
    (cluster_id, code, "values", raw, digest, source_key, source, line, first_seen, last_seen, resolution)
SELECT %(cluster)s, b.code, b."values"::jsonb, b.raw, b.digest, b.key, %(source)s, b.line, %(moment)s, %(moment)s, ''
FROM unnest(%(codes)s::text[], %(values)s::text[], %(raws)s::text[], %(digests)s::text[], %(keys)s::text[],
            %(lines)s::bigint[]) AS b (code, "values", raw, digest, key, line)
ORDER BY b.digest
ON CONFLICT (cluster_id, digest) DO UPDATE
SET last_seen = excluded.last_seen, source = excluded.source, line = excluded.line

-- name: RENAME
UPDATE clusters_usagerecord u SET "user" = n.name FROM unnest(%(ids)s::bigint[], %(names)s::text[]) AS n (id, name)
WHERE u.id = n.id

-- name: RENAME_REVISIONS
UPDATE clusters_usagerevision u SET "user" = n.name FROM unnest(%(ids)s::bigint[], %(names)s::text[]) AS n (id, name)
WHERE u.record_id = n.id AND u."user" <> ''

-- name: MOVE_WATERMARK
UPDATE clusters_cluster SET complete_through = %(as_of)s
WHERE id = %(cluster)s AND (complete_through IS NULL OR complete_through < %(as_of)s)
