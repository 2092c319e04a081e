"""The statements by which `ledger` merges a staged batch into the usage tables."""

from __future__ import annotations

from clusters.usage_sql import input_row

# What makes a revision when it changes: account, shape, start, end, state, suspension.
REVISING = (
    "account_id",
    '"user"',
    "queue",
    "qos",
    "priority_class",
    "gpus",
    "gpu_model",
    "mig_profile",
    "share_num",
    "share_den",
    "cpu_milli",
    "memory_mib",
    "nodes",
    "started",
    "ended",
    "suspended",
    "state",
    "gpu_memory_mib",
    "billing",
)
# What only describes a run: written in place when it changes, without a revision.
DESCRIBING = ("job_id", "name", "node_list", "requested", "time_limit", "submitted", "eligible", "exit_code")

_TEXTS = ("source_key", "job_id", "name", '"user"', "queue", "qos", "priority_class")
_STAGED = (
    *_TEXTS,
    "gpus",
    "gpu_model",
    "mig_profile",
    "share_num",
    "share_den",
    "cpu_milli",
    "memory_mib",
    "nodes",
    "node_list",
    "requested",
    "time_limit",
    "submitted",
    "eligible",
    "started",
    "ended",
    "seen_until",
    "suspended",
    "gpu_memory_mib",
    "billing",
    "state",
    "exit_code",
)


def _row(columns: tuple[str, ...], alias: str) -> str:
    return ", ".join(f"{alias}.{column}" for column in columns)


_COLUMNS = ", ".join(_STAGED)

# Session-local and emptied at commit: made once per connection, free of catalogue churn.
PREPARE = """
CREATE TEMP TABLE IF NOT EXISTS usage_stage (
    turn int NOT NULL, account text NOT NULL,
    source_key text NOT NULL, job_id text NOT NULL, name text NOT NULL, "user" text NOT NULL,
    queue text NOT NULL, qos text NOT NULL, priority_class text NOT NULL,
    gpus int NOT NULL, gpu_model text NOT NULL, mig_profile text NOT NULL,
    share_num int NOT NULL, share_den int NOT NULL,
    cpu_milli bigint NOT NULL, memory_mib bigint NOT NULL, nodes int NOT NULL,
    node_list text NOT NULL, requested text NOT NULL, time_limit bigint,
    submitted bigint, eligible bigint, started bigint, ended bigint, seen_until bigint,
    suspended bigint NOT NULL, gpu_memory_mib bigint NOT NULL, billing bigint NOT NULL,
    state text NOT NULL, exit_code text NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS usage_match (
    source_key text NOT NULL, account_id bigint NOT NULL, record_id bigint, verdict text NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS usage_touched (record_id bigint NOT NULL) ON COMMIT DELETE ROWS;
"""
TABLES = ("usage_stage", "usage_match", "usage_touched")

# Of three columns only: of all 30 it takes as long as merging the batch. The others are never joined by.
ANALYZE = "ANALYZE usage_stage (turn, account, source_key)"

STAGED_TEXTS = (
    "account", *_TEXTS, "gpu_model", "mig_profile", "node_list", "requested", "state", "exit_code",
)  # fmt: skip
STAGED_NUMBERS = ("turn", *(column for column in _STAGED if column not in STAGED_TEXTS))
COPY_STAGE = f"COPY usage_stage ({', '.join(STAGED_TEXTS + STAGED_NUMBERS)}) FROM STDIN"

# Against being deleted before the batch is committed; those that are missing are added, and held by that.
HOLD_ACCOUNTS = """
SELECT id FROM clusters_account
WHERE cluster_id = %(cluster)s AND name IN (SELECT account FROM usage_stage) ORDER BY id FOR KEY SHARE
"""

ADD_ACCOUNTS = """
INSERT INTO clusters_account (cluster_id, name)
SELECT DISTINCT %(cluster)s::bigint, s.account FROM usage_stage s
WHERE NOT EXISTS (SELECT 1 FROM clusters_account a WHERE a.cluster_id = %(cluster)s AND a.name = s.account)
ORDER BY 2
ON CONFLICT DO NOTHING
"""

# Where the last word on a key (an end before an open row) is what is known, what led to it is known as well.
DROP_HISTORY_KNOWN = f"""
DELETE FROM usage_stage s USING (
    SELECT DISTINCT ON (source_key) * FROM usage_stage ORDER BY source_key, (ended IS NULL), turn DESC
) n
JOIN clusters_account a ON a.cluster_id = %(cluster)s AND a.name = n.account
CROSS JOIN LATERAL (
    SELECT * FROM clusters_usagerecord r WHERE r.cluster_id = %(cluster)s AND r.source_key = n.source_key OFFSET 0
) u
WHERE s.source_key = n.source_key AND s.turn < n.turn
  AND ({_row(REVISING, "u")}, u.seen_until) IS NOT DISTINCT FROM
      (a.id, {_row(REVISING[1:], "n")}, CASE WHEN n.ended IS NULL THEN n.seen_until END)
"""

# Older news than what is known: an open row of a closed record, a waiting row of a started one,
# an earlier sight of one that still runs.
_STALE = """(u.ended IS NOT NULL AND s.ended IS NULL)
      OR (u.started IS NOT NULL AND s.started IS NULL)
      OR (u.ended IS NULL AND s.ended IS NULL AND u.seen_until > coalesce(s.seen_until, 0))"""

# While a run goes on, its suspended seconds grow with it: not news by itself. `_row` gives the staged columns.
_NEWS = _row(REVISING[1:], "s").replace(
    "s.suspended", "CASE WHEN u.ended IS NULL AND s.ended IS NULL THEN u.suspended ELSE s.suspended END"
)

# A run that goes on is seen anew only as it passes a mark of the hour: each sight rates its last stretch again, which
# is a row more of each resource, and of a thousand runs polled every five minutes half a million rows a day.
# One that had vanished is back with its first sight.
_PASSED_A_MARK = """(%(marks)s::int[] IS NULL OR u.seen_until IS NULL OR EXISTS (
                 SELECT 1 FROM unnest(%(marks)s::int[]) AS m (second)
                 WHERE (s.seen_until - m.second) / 3600 > (u.seen_until - m.second) / 3600)
             OR EXISTS (SELECT 1 FROM clusters_vanishedrun v WHERE v.record_id = u.id))"""

MATCH = f"""
TRUNCATE usage_match;
INSERT INTO usage_match (source_key, account_id, record_id, verdict)
SELECT s.source_key, a.id, u.id,
       CASE WHEN u.id IS NULL THEN 'new'
            WHEN {_STALE} THEN 'stale'
            WHEN ({_row(REVISING, "u")}) IS DISTINCT FROM
                 (a.id, {_NEWS}) THEN 'revised'
            WHEN ({_row(DESCRIBING, "u")}) IS DISTINCT FROM ({_row(DESCRIBING, "s")}) THEN 'described'
            WHEN u.seen_until IS DISTINCT FROM s.seen_until AND {_PASSED_A_MARK} THEN 'seen'
            ELSE 'same' END
FROM usage_stage s
JOIN clusters_account a ON a.cluster_id = %(cluster)s AND a.name = s.account
LEFT JOIN LATERAL (  -- one look into the unique index per row, whatever the statistics say of a young table
    SELECT * FROM clusters_usagerecord r WHERE r.cluster_id = %(cluster)s AND r.source_key = s.source_key LIMIT 1
) u ON true
WHERE s.turn = %(turn)s
"""

VERDICTS = "SELECT DISTINCT verdict FROM usage_match"

# What follows joins by `verdict`: taken for one row in two hundred, as unknown columns are, five thousand of one
# verdict were joined by nested loops over both tables.
ANALYZE_MATCH = "ANALYZE usage_match (source_key, record_id, verdict)"

INSERT_NEW = f"""
WITH added AS (
    INSERT INTO clusters_usagerecord (cluster_id, account_id, revision, last_seen, {_COLUMNS})
    SELECT %(cluster)s, m.account_id, 1, %(moment)s, {_row(_STAGED, "s")}
    FROM usage_stage s JOIN usage_match m ON m.source_key = s.source_key AND m.verdict = 'new'
    WHERE s.turn = %(turn)s
    RETURNING *
)
INSERT INTO usage_input SELECT {input_row(fresh="true", cluster="%(name)s", account="a.name")}
FROM added u JOIN clusters_account a ON a.id = u.account_id
"""

ENSURE_MONTH = "SELECT clusters_ensure_month((%(moment)s::timestamptz AT TIME ZONE 'UTC')::date)"

KEEP_OLD = f"""
INSERT INTO clusters_usagerevision
    (record_id, account_id, revision, superseded_at, superseded_month, {_COLUMNS})
SELECT u.id, u.account_id, u.revision, %(moment)s,
       date_trunc('month', %(moment)s::timestamptz AT TIME ZONE 'UTC')::date, {_row(_STAGED, "u")}
FROM usage_match m
CROSS JOIN LATERAL (SELECT * FROM clusters_usagerecord r WHERE r.id = m.record_id OFFSET 0) u
WHERE m.verdict = 'revised'
"""


def _rewrite(verdict: str, *assignments: str) -> str:
    """Rows of that verdict are found by the unique index, one by one.

    Joined to an UPDATE, a table that was vacuumed while it was young, and so is taken for empty, was read whole.
    """
    return f"""
WITH changed AS (
    INSERT INTO clusters_usagerecord AS u (cluster_id, account_id, revision, last_seen, {_COLUMNS})
    SELECT %(cluster)s, m.account_id, 1, %(moment)s, {_row(_STAGED, "s")}
    FROM usage_stage s JOIN usage_match m ON m.source_key = s.source_key AND m.verdict = '{verdict}'
    WHERE s.turn = %(turn)s
    ON CONFLICT (cluster_id, source_key) DO UPDATE
    SET last_seen = excluded.last_seen, seen_until = excluded.seen_until{"".join(f", {one}" for one in assignments)}
    RETURNING u.id
)
INSERT INTO usage_touched (record_id) SELECT id FROM changed
"""


_DESCRIBED = tuple(f"{column} = excluded.{column}" for column in DESCRIBING)
_REVISED = tuple(f"{column} = excluded.{column}" for column in REVISING)
REVISE = _rewrite("revised", "revision = u.revision + 1", *_REVISED, *_DESCRIBED)
DESCRIBE_ANEW = _rewrite("described", *_DESCRIBED, "suspended = excluded.suspended")
SEE_AGAIN = _rewrite("seen", "suspended = excluded.suspended")

# By news only: an old snapshot read again says nothing about a newer row that could not be read.
RESOLVE_QUARANTINE = """
UPDATE clusters_quarantined q SET resolved_at = %(moment)s, resolution = 'A good row of the same key was read.'
FROM usage_match m
WHERE m.verdict IN ('new', 'revised')
  AND q.cluster_id = %(cluster)s AND q.resolved_at IS NULL AND q.source_key <> '' AND q.source_key = m.source_key
"""

QUARANTINE = """
INSERT INTO clusters_quarantined
    (cluster_id, code, reason, raw, digest, source_key, source, line, first_seen, last_seen, resolution)
SELECT %(cluster)s, b.code, b.reason, b.raw, b.digest, b.key, %(source)s, b.line, %(moment)s, %(moment)s, ''
FROM unnest(%(codes)s::text[], %(reasons)s::text[], %(raws)s::text[], %(digests)s::text[], %(keys)s::text[],
            %(lines)s::bigint[]) AS b (code, reason, raw, digest, key, line)
ORDER BY b.digest
ON CONFLICT (cluster_id, digest) DO UPDATE
SET last_seen = excluded.last_seen, source = excluded.source, line = excluded.line
"""

RENAME = """
UPDATE clusters_usagerecord u SET "user" = n.name FROM unnest(%(ids)s::bigint[], %(names)s::text[]) AS n (id, name)
WHERE u.id = n.id
"""

RENAME_REVISIONS = """
UPDATE clusters_usagerevision u SET "user" = n.name FROM unnest(%(ids)s::bigint[], %(names)s::text[]) AS n (id, name)
WHERE u.record_id = n.id AND u."user" <> ''
"""

MOVE_WATERMARK = """
UPDATE clusters_cluster SET complete_through = %(as_of)s
WHERE id = %(cluster)s AND (complete_through IS NULL OR complete_through < %(as_of)s)
"""
