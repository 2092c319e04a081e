-- Finding the runs of hours of telemetry, and merging the hours.

-- name: COPY_STAGE
COPY utilisation_stage (source_key, hour, busy, covered, source, metric) FROM STDIN

-- name: COPY_JOBS
COPY utilisation_job (job_id, hour, busy, covered, metric) FROM STDIN

-- name: MONTHS
-- Those that keys say, each with the partition of their records.
SELECT DISTINCT key_month, c.relname FROM utilisation_stage
JOIN pg_class c ON c.relnamespace = 'public'::regnamespace
               AND c.relname = 'clusters_usagerecord_' || to_char(month_of_number(key_month), 'YYYY_MM')

-- name: FIND
-- The runs of a month. Its partition is sent in the table's place.
UPDATE utilisation_stage s SET record_id = (
    SELECT r.id FROM clusters_usagerecord r
    WHERE r.cluster_id = %(cluster)s AND r.source_key = s.source_key LIMIT 1
) WHERE s.key_month = %(month)s

-- name: FIND_HELD
-- A record that stands in files alone is not known here, as one whose key says its month.
UPDATE utilisation_stage s SET record_id = (
    SELECT r.id FROM clusters_usagekey k JOIN clusters_usagerecord r ON r.id = k.record_id
    WHERE k.cluster_id = %(cluster)s AND k.source_key = s.source_key
) WHERE s.key_month IS NULL

-- name: MERGE
-- Each row by one look into either index, whatever the statistics say of a young table. What is stored as it was read is
-- left alone: turned away by ON CONFLICT, it would be locked, which writes it.
WITH stage AS (
    SELECT s.*, s.covered > 3600 * u.gpus::bigint AS large,
           (h.busy, h.covered, h.source, h.metric) IS NOT DISTINCT FROM (s.busy, s.covered, s.source, s.metric) AS same
    FROM utilisation_stage s
    LEFT JOIN LATERAL (SELECT gpus FROM clusters_usagerecord r WHERE r.id = s.record_id LIMIT 1) u ON true
    LEFT JOIN LATERAL (
        SELECT * FROM clusters_utilisationhour k WHERE k.record_id = s.record_id AND k.hour = s.hour LIMIT 1
    ) h ON true
), changed AS (
    INSERT INTO clusters_utilisationhour (record_id, hour, busy, covered, source, metric)
    SELECT record_id, hour, busy, covered, source, metric FROM stage
    WHERE record_id IS NOT NULL AND NOT large AND NOT same
    ON CONFLICT (record_id, hour) DO UPDATE
    SET busy = excluded.busy, covered = excluded.covered, source = excluded.source, metric = excluded.metric
    RETURNING record_id
), noted AS (
    INSERT INTO utilisation_changed (record_id) SELECT record_id FROM changed
)
SELECT (SELECT count(*) FROM changed),
       count(*) FILTER (WHERE record_id IS NULL), min(source_key) FILTER (WHERE record_id IS NULL),
       count(*) FILTER (WHERE large), min(source_key) FILTER (WHERE large)
FROM stage

-- name: STAGE_JOBS
-- Of the runs that overlap the hours at all, by their number, which is what their key begins with. One that ended in the
-- second of its start held nothing, though a scrape may have met its number on a device.
WITH run AS MATERIALIZED (
    SELECT source_key, split_part(source_key, '@', 1) AS job_id, gpus::bigint AS gpus, started, ended
    FROM clusters_usagerecord
    WHERE cluster_id = %(cluster)s AND gpus > 0 AND started < %(until)s AND (ended IS NULL OR ended > %(since)s)
), job AS (
    SELECT j.*, r.source_key,
           r.gpus * (least(r.ended, j.hour + 3600) - greatest(r.started, j.hour)) AS held
    FROM utilisation_job j
    LEFT JOIN run r ON r.job_id = j.job_id AND r.started < j.hour + 3600 AND (r.ended IS NULL OR r.ended > j.hour)
), shared AS (
    SELECT *, CASE WHEN held = 0 THEN 0
                   ELSE least(div(covered::numeric * held, sum(held) OVER (PARTITION BY job_id, hour)), held)
              END AS part FROM job
), staged AS (
    INSERT INTO utilisation_stage (source_key, hour, busy, covered, source, metric)
    SELECT source_key, hour, trunc(busy * part / covered, 9), part, %(source)s, metric
    FROM shared WHERE source_key IS NOT NULL AND covered > 0 AND held > 0
)
SELECT count(*) FILTER (WHERE source_key IS NULL), min(job_id) FILTER (WHERE source_key IS NULL) FROM shared
