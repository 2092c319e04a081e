"""The statements that fill `usage_input`, the table by which everything above reads usage."""

from __future__ import annotations

PREPARE = """
CREATE TEMP TABLE IF NOT EXISTS usage_input (
    record_id bigint NOT NULL, revision int NOT NULL, fresh boolean NOT NULL,
    cluster text NOT NULL, account_id bigint NOT NULL, account text NOT NULL,
    job_id text NOT NULL, name text NOT NULL, "user" text NOT NULL, queue text NOT NULL, qos text NOT NULL,
    priority_class text NOT NULL, gpus int NOT NULL, gpu_model text NOT NULL, mig_profile text NOT NULL,
    share_num int NOT NULL, share_den int NOT NULL, cpu_milli bigint NOT NULL, memory_mib bigint NOT NULL,
    nodes int NOT NULL, state text NOT NULL, submitted bigint, started bigint, ended bigint, seen_until bigint,
    finish bigint, suspended bigint NOT NULL, gpu_memory_mib bigint NOT NULL, billing bigint NOT NULL
) ON COMMIT DELETE ROWS;
"""
TABLES = ("usage_input",)


def input_row(*, fresh: str, cluster: str, account: str) -> str:
    """The columns of `usage_input` from a record `u`."""
    return f"""u.id, u.revision, {fresh}, {cluster}, u.account_id, {account}, u.job_id, u.name, u."user", u.queue,
       u.qos, u.priority_class, u.gpus, u.gpu_model, u.mig_profile, u.share_num, u.share_den, u.cpu_milli,
       u.memory_mib, u.nodes, u.state, u.submitted, u.started, u.ended, u.seen_until,
       coalesce(u.ended, u.seen_until), u.suspended, u.gpu_memory_mib, u.billing"""


_NAMED = "JOIN clusters_account a ON a.id = u.account_id JOIN clusters_cluster c ON c.id = u.cluster_id"

# What is new stands in `usage_input` already; of one key told twice in a batch, as it stood before the second time.
LOAD_TOUCHED = f"""
ANALYZE usage_touched;
WITH renewed AS (
    DELETE FROM usage_input i USING (SELECT DISTINCT record_id FROM usage_touched) t
    WHERE i.record_id = t.record_id RETURNING i.record_id
)
INSERT INTO usage_input
SELECT {input_row(fresh="n.record_id IS NOT NULL", cluster="c.name", account="a.name")}
FROM (SELECT DISTINCT record_id FROM usage_touched) t
CROSS JOIN LATERAL (SELECT * FROM clusters_usagerecord r WHERE r.id = t.record_id OFFSET 0) u
LEFT JOIN renewed n ON n.record_id = u.id
{_NAMED}
"""

LOAD_UTILISED = f"""
INSERT INTO usage_input
SELECT {input_row(fresh="false", cluster="c.name", account="a.name")}
FROM (SELECT DISTINCT record_id FROM utilisation_changed) t
CROSS JOIN LATERAL (SELECT * FROM clusters_usagerecord r WHERE r.id = t.record_id OFFSET 0) u
{_NAMED}
"""

LOAD_SLICE = f"""
INSERT INTO usage_input
SELECT {input_row(fresh="false", cluster="c.name", account="a.name")}
FROM clusters_usagerecord u {_NAMED}
WHERE u.id > %(after)s AND u.id <= %(last)s AND u.account_id = ANY (%(accounts)s)
"""

_HELD_WITHIN = "started < %(until)s AND coalesce(ended, seen_until) > %(since)s"

LOAD_WINDOW = f"{LOAD_SLICE} AND u.started < %(until)s AND coalesce(u.ended, u.seen_until) > %(since)s"

BORDERS_OF_WINDOW = f"""
SELECT id FROM (
    SELECT id, row_number() OVER (ORDER BY id) AS place FROM clusters_usagerecord
    WHERE account_id = ANY (%(accounts)s) AND {_HELD_WITHIN}
) record WHERE mod(place, %(size)s) = 0 ORDER BY id
"""

COUNT_WINDOW = f"""
SELECT count(*) FROM clusters_usagerecord WHERE account_id = ANY (%(accounts)s) AND {_HELD_WITHIN}
"""

_TEXTS = (
    *("job_id", "name", "user", "queue", "qos", "priority_class"),
    *("gpu_model", "mig_profile", "state"),
)
_NUMBERS = (
    *("gpus", "cpu_milli", "memory_mib", "nodes", "submitted", "started", "ended", "seen_until"),
    *("suspended", "gpu_memory_mib", "billing"),
)
SUPPOSED = (*_TEXTS, *_NUMBERS)
"""Columns of `usage_input` that a run which never was says itself, beside its account and share."""

SUPPOSE = f"""
INSERT INTO usage_input
SELECT {input_row(fresh="true", cluster="c.name", account="a.name")}
FROM (
    SELECT 9223372036854775807 AS id, 1 AS revision, %(account)s::bigint AS account_id,
           {", ".join(f'%({name})s::text AS "{name}"' for name in _TEXTS)},
           {", ".join(f'%({name})s::bigint AS "{name}"' for name in _NUMBERS)},
           %(share_num)s AS share_num, %(share_den)s AS share_den
) u JOIN clusters_account a ON a.id = u.account_id JOIN clusters_cluster c ON c.id = a.cluster_id
"""

# No more than asked for: whether that was all is seen by the number.
LOAD_FEW = f"""
INSERT INTO usage_input
SELECT {input_row(fresh="false", cluster="c.name", account="a.name")}
FROM (SELECT * FROM clusters_usagerecord WHERE account_id = ANY (%(accounts)s) LIMIT %(most)s) u {_NAMED}
"""

# In one pass: asked for slice by slice, all that is left was read and sorted for each.
BORDERS = """
SELECT id FROM (
    SELECT id, row_number() OVER (ORDER BY id) AS place FROM clusters_usagerecord WHERE account_id = ANY (%(accounts)s)
) record WHERE mod(place, %(size)s) = 0 ORDER BY id
"""

# Statistics are of what rating and proof join and filter by: of all columns they take longer than the rows. What
# prices select by rating adds, where some do.
ANALYZE = "ANALYZE usage_input (record_id, fresh, account_id, cluster)"
