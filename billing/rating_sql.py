"""The statements by which `rating` turns `usage_input` into what has to change; `rated_sql` writes it.

Tables that other sessions grow are looked up row by row (LATERAL … OFFSET 0): a plan that is good for
ten thousand records must not depend on when statistics of them were last gathered.
"""

from __future__ import annotations

from clusters.usage import ACTIVE


def midnight(day: str, zone: str) -> str:
    """SQL for the epoch of a local day's first instant, as `period` has it.

    Of a midnight that comes twice PostgreSQL takes the second; the day begins with the first.
    """
    second = f"({day})::timestamp AT TIME ZONE {zone}"
    first = f"({second} - interval '1 hour')"
    return (
        f"extract(epoch FROM CASE WHEN ({first} AT TIME ZONE {zone})::date = ({day})::date THEN {first}"
        f" ELSE {second} END)::bigint"
    )


# Session-local working tables, emptied at commit.
PREPARE = """
CREATE TEMP TABLE IF NOT EXISTS rate_shape (
    shape_id int NOT NULL, account_id bigint NOT NULL, cluster text, queue text, qos text, priority_class text,
    gpu_model text, mig_profile text, state text
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_span (
    account_id bigint NOT NULL, tenant_id bigint NOT NULL, project_id bigint NOT NULL, timezone text NOT NULL,
    since bigint NOT NULL, until bigint NOT NULL, period_id bigint NOT NULL, version_id bigint, charges text[]
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_offer (
    shape_id int NOT NULL, resource text NOT NULL, tenant_id bigint NOT NULL, project_id bigint NOT NULL,
    since bigint NOT NULL, until bigint NOT NULL, period_id bigint NOT NULL, timezone text NOT NULL,
    version_id bigint, price_id bigint, unit_price numeric, verdict text NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_wanted (
    record_id bigint NOT NULL, resource text NOT NULL, tenant_id bigint NOT NULL, project_id bigint NOT NULL,
    period_id bigint NOT NULL, version_id bigint, price_id bigint, verdict text NOT NULL,
    service_from bigint NOT NULL, service_to bigint NOT NULL, units bigint NOT NULL,
    share_num int NOT NULL, share_den int NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_change (
    id bigint NOT NULL, record_id bigint NOT NULL, generation int NOT NULL, resource text NOT NULL,
    tenant_id bigint NOT NULL, project_id bigint NOT NULL, period_id bigint NOT NULL, version_id bigint,
    price_id bigint, verdict text NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL,
    units bigint NOT NULL, share_num int NOT NULL, share_den int NOT NULL, "user" text NOT NULL, gpu_model text NOT NULL
) ON COMMIT DELETE ROWS;
"""
TABLES = ("rate_shape", "rate_span", "rate_offer", "rate_wanted", "rate_change")

# All locks are taken in order of id, as by every other holder of several. `ownership.assign` locks its account
# against the share lock; the weaker locks of foreign keys disturb neither.
LOCK_ACCOUNTS = "SELECT id FROM clusters_account WHERE id = ANY (%s) ORDER BY id FOR SHARE"

LOCK_OWNERS = """
SELECT id FROM tenants_tenant
WHERE id IN (SELECT tenant_id FROM tenants_ownership WHERE account_id = ANY (%s)) ORDER BY id FOR NO KEY UPDATE
"""

# Who owned a revised record before it moved to another account.
LOCK_FORMER_OWNERS = """
SELECT id FROM tenants_tenant
WHERE id IN (SELECT j.tenant_id FROM usage_input u CROSS JOIN LATERAL (
                 SELECT tenant_id FROM billing_ratedjob r WHERE r.record_id = u.record_id OFFSET 0
             ) j WHERE NOT u.fresh)
ORDER BY id FOR NO KEY UPDATE
"""

PERIODS_NEEDED = """
SELECT * FROM (
    SELECT t.id, t.timezone, t.anchor_day, min(u.started) AS since, max(greatest(u.finish, u.started + 1)) AS until,
           (SELECT min(p.start) FROM billing_billingperiod p WHERE p.tenant_id = t.id) AS first,
           (SELECT max(p."end") FROM billing_billingperiod p WHERE p.tenant_id = t.id) AS last
    FROM (SELECT account_id, min(started) AS started, max(finish) AS finish FROM usage_input
          WHERE started IS NOT NULL GROUP BY account_id) u
    JOIN tenants_ownership o ON o.account_id = u.account_id
    JOIN tenants_tenant t ON t.id = o.tenant_id
    GROUP BY t.id
) needed
WHERE first IS NULL OR extract(epoch FROM first) > since OR extract(epoch FROM last) < until
"""

ENSURE_MONTHS = """
SELECT billing_ensure_month(month::date)
FROM (SELECT min(started) AS since, max(finish) AS until FROM usage_input) u,
     generate_series(date_trunc('month', to_timestamp(since) AT TIME ZONE 'UTC'),
                     to_timestamp(until) AT TIME ZONE 'UTC', '1 month') AS month
WHERE since IS NOT NULL
"""

SHAPES = """
INSERT INTO rate_shape
SELECT row_number() OVER (), d.* FROM (
    SELECT DISTINCT account_id, cluster, queue, qos, priority_class, gpu_model, mig_profile, state FROM usage_input
) d;
ANALYZE rate_shape
"""

# Elementary spans of each account: cut at every border that could change owner, period or terms, so that
# within one span everything but the shape of the usage is constant. UTC months are borders too: a rated row
# lies in one month, so that the conservation sums of a month need no clipping.
SPANS = f"""
INSERT INTO rate_span
WITH reach AS (
    SELECT account_id, min(started) AS lo, max(finish) AS hi FROM usage_input
    WHERE started IS NOT NULL GROUP BY account_id
), own AS (
    SELECT o.id, o.account_id, o.tenant_id, o.project_id, t.timezone,
           greatest(coalesce(extract(epoch FROM o.since)::bigint, r.lo), r.lo) AS s,
           least(coalesce(extract(epoch FROM o.until)::bigint, r.hi), r.hi) AS e
    FROM reach r JOIN tenants_ownership o ON o.account_id = r.account_id JOIN tenants_tenant t ON t.id = o.tenant_id
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
        UNION ALL SELECT {midnight("x.day", "own.timezone")}
            FROM billing_subscription sub JOIN billing_planversion v ON v.plan_id = sub.plan_id
            LEFT JOIN billing_price c ON c.version_id = v.id,
            LATERAL (VALUES (v.effective_from), (c.valid_from), (c.valid_until)) AS x (day)
            WHERE sub.tenant_id = own.tenant_id
    ) b WHERE b.at > own.s AND b.at < own.e
), span AS (
    SELECT own.*, mark.at, lead(mark.at, 1, own.e) OVER (PARTITION BY own.id ORDER BY mark.at) AS until
    FROM own JOIN mark ON mark.id = own.id
)
SELECT s.account_id, s.tenant_id, s.project_id, p.timezone, s.at, s.until, p.id, v.id, v.charges
FROM span s
JOIN billing_billingperiod p ON p.tenant_id = s.tenant_id
    AND p.start <= to_timestamp(s.at) AND p."end" > to_timestamp(s.at)
LEFT JOIN billing_subscription sub ON sub.tenant_id = s.tenant_id
    AND extract(epoch FROM sub.since)::bigint <= s.at
    AND (sub.until IS NULL OR extract(epoch FROM sub.until)::bigint > s.at)
LEFT JOIN LATERAL (
    SELECT v.id, v.charges FROM billing_planversion v
    WHERE v.plan_id = sub.plan_id AND v.effective_from <= (to_timestamp(s.at) AT TIME ZONE s.timezone)::date
    ORDER BY v.effective_from DESC LIMIT 1
) v ON true
WHERE s.until > s.at;
ANALYZE rate_span
"""  # noqa: S608 - built from constants


def _selects(column: str, attribute: str) -> str:
    return f"(c.{column} = '{{}}' OR h.{attribute} = ANY (c.{column}))"


# What each shape of usage costs in each span: resolved once per shape, not once per record.
OFFERS = f"""
INSERT INTO rate_offer
SELECT h.shape_id, r.resource, s.tenant_id, s.project_id, s.since, s.until, s.period_id, s.timezone,
       s.version_id, CASE WHEN r.resource = ANY (s.charges) THEN c.id END,
       CASE WHEN r.resource = ANY (s.charges) THEN c.unit_price END,
       CASE WHEN s.version_id IS NULL THEN 'unpriced'
            WHEN NOT r.resource = ANY (s.charges) THEN 'waived'
            WHEN c.id IS NULL THEN 'unpriced' ELSE 'charged' END
FROM rate_span s JOIN rate_shape h ON h.account_id = s.account_id
CROSS JOIN (VALUES ('gpu'), ('cpu'), ('memory')) AS r (resource)
LEFT JOIN LATERAL (
    SELECT c.id, c.unit_price FROM billing_price c
    WHERE c.version_id = s.version_id AND c.resource = r.resource
      AND c.valid_from <= (to_timestamp(s.since) AT TIME ZONE s.timezone)::date
      AND (c.valid_until IS NULL OR c.valid_until > (to_timestamp(s.since) AT TIME ZONE s.timezone)::date)
      AND {_selects("clusters", "cluster")} AND {_selects("queues", "queue")} AND {_selects("qoses", "qos")}
      AND {_selects("priority_classes", "priority_class")} AND {_selects("gpu_models", "gpu_model")}
      AND {_selects("mig_profiles", "mig_profile")} AND {_selects("states", "state")}
    ORDER BY c.specificity DESC, c.position, c.id LIMIT 1
) c ON true;
ANALYZE rate_offer
"""  # noqa: S608 - built from constants

_HELD = ACTIVE.format(
    since="o.since", until="o.until", started="u.started", finish="u.finish", suspended="u.suspended"
)

KEY = """record_id, resource, tenant_id, project_id, period_id, version_id, price_id, verdict,
    service_from, service_to, share_num, share_den"""


def key_of(alias: str) -> str:
    """The columns of `KEY` of that table."""
    return ", ".join(f"{alias}.{column.strip()}" for column in KEY.split(","))


# Zero-length runs hold nothing: they have no cut, but stay visible as jobs.
_CUT = f"""
    SELECT u.record_id, o.resource, o.tenant_id, o.project_id, o.period_id, o.version_id, o.price_id, o.verdict,
           greatest(u.started, o.since) AS service_from, least(u.finish, o.until) AS service_to,
           CASE o.resource WHEN 'gpu' THEN u.share_num ELSE 1 END AS share_num,
           CASE o.resource WHEN 'gpu' THEN u.share_den WHEN 'cpu' THEN 1000 ELSE 1024 END AS share_den,
           CASE o.resource WHEN 'gpu' THEN u.gpus WHEN 'cpu' THEN u.cpu_milli ELSE u.memory_mib END * {_HELD} AS units,
           u."user", u.gpu_model
    FROM usage_input u
    JOIN rate_shape h
      ON (h.account_id, h.cluster, h.queue, h.qos, h.priority_class, h.gpu_model, h.mig_profile, h.state)
       = (u.account_id, u.cluster, u.queue, u.qos, u.priority_class, u.gpu_model, u.mig_profile, u.state)
    JOIN rate_offer o ON o.shape_id = h.shape_id AND o.since < u.finish AND o.until > u.started
    WHERE CASE o.resource WHEN 'gpu' THEN u.gpus WHEN 'cpu' THEN u.cpu_milli ELSE u.memory_mib END > 0
      AND {_HELD} > 0
"""  # noqa: S608 - built from constants

# What should stand, to be compared with what does. Statistics are of what is joined by; of all columns they take
# longer than the rows.
WANTED = f"""
INSERT INTO rate_wanted ({KEY}, units) SELECT {KEY}, units FROM ({_CUT}) cut;
ANALYZE rate_wanted (record_id)
"""  # noqa: S608 - built from constants

# Where no record was rated before, all that should stand is new.
WANTED_OF_FRESH = f"""
INSERT INTO rate_change (id, generation, {KEY}, units, "user", gpu_model)
SELECT nextval('billing_ratedusage_id_seq'), 1, {KEY}, units, "user", gpu_model FROM ({_CUT}) cut;
ANALYZE rate_change (record_id)
"""  # noqa: S608 - built from constants

# A cut whose units differ is taken back and written anew, both whole, so that each row can be split over days
# by itself and a reversal splits exactly as what it reverses. Rated rows do not carry user and model: where one
# of them changed, all of the record is taken back under its old description, which its job still shows.
CHANGES = f"""
INSERT INTO rate_change (id, generation, {KEY}, units, "user", gpu_model)
WITH before AS MATERIALIZED (
    SELECT u.record_id, min(j.started) AS started, max(coalesce(j.ended, j.seen_until)) AS finish,
           bool_or((j."user", j.gpu_model) <> (u."user", u.gpu_model)) AS redescribed
    FROM usage_input u
    CROSS JOIN LATERAL (SELECT * FROM billing_ratedjob r WHERE r.record_id = u.record_id OFFSET 0) j
    WHERE NOT u.fresh GROUP BY u.record_id
), sides AS (
    SELECT {key_of("r")}, r.units AS stands, 0 AS wanted FROM before b CROSS JOIN LATERAL (
        SELECT * FROM billing_ratedusage u WHERE u.record_id = b.record_id
          AND u.service_month >= date_trunc('month', to_timestamp(b.started) AT TIME ZONE 'UTC')::date
          AND u.service_month <= (to_timestamp(b.finish) AT TIME ZONE 'UTC')::date OFFSET 0
    ) r
    UNION ALL SELECT {KEY}, 0, units FROM rate_wanted
), other AS MATERIALIZED (
    SELECT {KEY}, sum(stands)::bigint AS stands, sum(wanted)::bigint AS wanted FROM sides GROUP BY {KEY}
    HAVING sum(stands) <> sum(wanted) OR record_id IN (SELECT record_id FROM before WHERE redescribed)
), change AS (
    SELECT {key_of("o")}, -o.stands AS units, j."user", j.gpu_model FROM other o CROSS JOIN LATERAL (
        SELECT * FROM billing_ratedjob r WHERE r.record_id = o.record_id AND r.tenant_id = o.tenant_id OFFSET 0
    ) j WHERE o.stands <> 0
    UNION ALL
    SELECT {key_of("o")}, o.wanted, u."user", u.gpu_model FROM other o JOIN usage_input u ON u.record_id = o.record_id
    WHERE o.wanted <> 0
), last AS (  -- of all months and former owners, or a cut that comes and goes would meet its own past
    SELECT c.record_id, max(r.generation) AS generation FROM (SELECT DISTINCT record_id FROM change) c
    CROSS JOIN LATERAL (SELECT generation FROM billing_ratedusage u WHERE u.record_id = c.record_id OFFSET 0) r
    GROUP BY c.record_id
)
SELECT nextval('billing_ratedusage_id_seq'), coalesce(last.generation, 0) + 1, {key_of("change")}, change.units,
       change."user", change.gpu_model
FROM change LEFT JOIN last USING (record_id);
ANALYZE rate_change (record_id)
"""  # noqa: S608 - built from constants
