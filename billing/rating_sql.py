"""The statements by which `rating` turns `usage_input` into what has to change; `rated_sql` writes it.

Tables that other sessions grow are looked up row by row (LATERAL … OFFSET 0): a plan that is good for
ten thousand records must not depend on when statistics of them were last gathered.
"""

from __future__ import annotations

from collections.abc import Sequence

from clusters.usage import ACTIVE

# Session-local working tables, emptied at commit. An offer is the terms that usage of one resource is rated by; its
# span and shape are empty where rows that stand already were rated by it.
PREPARE = """
CREATE TEMP TABLE IF NOT EXISTS rate_span (
    account_id bigint NOT NULL, tenant_id bigint NOT NULL, project_id bigint NOT NULL, timezone text NOT NULL,
    since bigint NOT NULL, until bigint NOT NULL, period_id bigint NOT NULL, version_id bigint, charges text[]
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_offer (
    offer_id int NOT NULL, account_id bigint, since bigint, until bigint, tenant_id bigint NOT NULL,
    project_id bigint NOT NULL, period_id bigint NOT NULL, version_id bigint, price_id bigint, service_month date,
    counted boolean NOT NULL, unit_price numeric, second_cost numeric, resource text NOT NULL, verdict text NOT NULL,
    timezone text NOT NULL, cluster text, queue text, qos text, priority_class text, gpu_model text,
    mig_profile text, state text
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_before (
    record_id bigint NOT NULL, tenant_id bigint NOT NULL, started bigint, finish bigint, "user" text NOT NULL,
    gpu_model text NOT NULL, redescribed boolean NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_wanted (
    record_id bigint NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL, units bigint NOT NULL,
    offer_id int NOT NULL, share_num int NOT NULL, share_den int NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_change (
    id bigint NOT NULL, record_id bigint NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL,
    units bigint NOT NULL, offer_id int NOT NULL, share_num int NOT NULL, share_den int NOT NULL,
    revision int NOT NULL, generation int NOT NULL, service_month date NOT NULL, counted boolean NOT NULL,
    "user" text NOT NULL, gpu_model text NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_difference (
    record_id bigint NOT NULL, generation int NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL,
    units bigint NOT NULL, share_num int NOT NULL, share_den int NOT NULL, tenant_id bigint NOT NULL,
    project_id bigint NOT NULL, period_id bigint NOT NULL, version_id bigint, price_id bigint,
    revision int NOT NULL, resource text NOT NULL, verdict text NOT NULL, "user" text NOT NULL, gpu_model text NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_day (
    timezone text NOT NULL, utc_day bigint NOT NULL, day date NOT NULL, since bigint NOT NULL, until bigint NOT NULL,
    first boolean NOT NULL
) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS rate_day_since ON rate_day (timezone, since) WHERE first;
"""
TABLES = (
    "rate_span",
    "rate_offer",
    "rate_before",
    "rate_wanted",
    "rate_difference",
    "rate_change",
    "rate_day",
)

# All locks are taken in order of id, as by every other holder of several. `ownership.assign` locks its account
# against the share lock; the weaker locks of foreign keys disturb neither.
LOCK_ACCOUNTS = "SELECT id FROM clusters_account WHERE id = ANY (%s) ORDER BY id FOR SHARE"

LOCK_OWNERS = """
SELECT id FROM tenants_tenant
WHERE id IN (SELECT tenant_id FROM tenants_ownership WHERE account_id = ANY (%s)) ORDER BY id FOR NO KEY UPDATE
"""

# Their projects too: a job does not check by itself that it stays.
HOLD_PROJECTS = """
SELECT id FROM tenants_project
WHERE id IN (SELECT project_id FROM tenants_ownership WHERE account_id = ANY (%s)) ORDER BY id FOR KEY SHARE
"""

# What jobs show of records that were rated before: once read, and read again only where a former owner, of a record
# that moved to another account, had to be waited for.
BEFORE = """
DELETE FROM rate_before;
INSERT INTO rate_before
SELECT u.record_id, j.tenant_id, j.started, coalesce(j.ended, j.seen_until), j."user", j.gpu_model,
       (j."user", j.gpu_model) <> (u."user", u.gpu_model)
FROM usage_input u CROSS JOIN LATERAL (
    SELECT * FROM billing_ratedjob r WHERE r.record_id = u.record_id OFFSET 0
) j WHERE NOT u.fresh;
ANALYZE rate_before (record_id, tenant_id)
"""

LOCK_FORMER_OWNERS = """
SELECT id FROM tenants_tenant WHERE id IN (
    SELECT tenant_id FROM rate_before
    EXCEPT SELECT o.tenant_id FROM tenants_ownership o WHERE o.account_id IN (SELECT account_id FROM usage_input)
) ORDER BY id FOR NO KEY UPDATE
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

_HELD = ACTIVE.format(
    since="o.since", until="o.until", started="u.started", finish="u.finish", suspended="u.suspended"
)
_AMOUNT = "CASE o.resource WHEN 'gpu' THEN u.gpus WHEN 'cpu' THEN u.cpu_milli ELSE u.memory_mib END"

_CUT = f"""
       u.record_id, greatest(u.started, o.since), least(u.finish, o.until), {_AMOUNT} * {_HELD}, o.offer_id,
       CASE o.resource WHEN 'gpu' THEN u.share_num ELSE 1 END,
       CASE o.resource WHEN 'gpu' THEN u.share_den WHEN 'cpu' THEN 1000 ELSE 1024 END"""

# Zero-length runs hold nothing: they have no cut, but stay visible as jobs.
_OF = f"""
FROM usage_input u JOIN rate_offer o
  ON o.account_id = u.account_id{{shape}} AND o.since < u.finish AND o.until > u.started
WHERE {_AMOUNT} > 0 AND (u.suspended = 0 OR {_HELD} > 0)"""

_WANTED = f"""
INSERT INTO rate_wanted (record_id, service_from, service_to, units, offer_id, share_num, share_den)
SELECT {_CUT} {_OF};
ANALYZE rate_wanted (record_id, offer_id)
"""

_CHANGED = """rate_change (record_id, service_from, service_to, units, offer_id, share_num, share_den,
    id, generation, revision, service_month, counted, "user", gpu_model)"""

_WANTED_OF_UNRATED = f"""
INSERT INTO {_CHANGED}
SELECT {_CUT}, nextval('billing_ratedusage_id_seq'), 1, u.revision, o.service_month, o.counted, u."user", u.gpu_model
{_OF};
ANALYZE rate_change (record_id, offer_id)
"""


def _shape(selected: Sequence[str]) -> str:
    return "".join(f" AND o.{attribute} = u.{attribute}" for attribute in selected)


def wanted(selected: Sequence[str]) -> str:
    """What should stand, to be compared with what does. `selected`: the attributes that offers differ by.

    Statistics are of what is joined by; of all columns they take longer than the rows.
    """
    return _WANTED.format(shape=_shape(selected))


def wanted_of_unrated(selected: Sequence[str]) -> str:
    """Where nothing was rated before, all that should stand is new."""
    return _WANTED_OF_UNRATED.format(shape=_shape(selected))


_TERMS = "resource, tenant_id, project_id, period_id, version_id, price_id, verdict"
_SPAN = "record_id, service_from, service_to, share_num, share_den"


def _of(alias: str, columns: str) -> str:
    return ", ".join(f"{alias}.{column.strip()}" for column in columns.split(","))


# A cut whose units differ is taken back and written anew, both whole, so that each row can be split over days
# by itself and a reversal splits exactly as what it reverses. Rated rows do not carry user and model: where one
# of them changed, all of the record is taken back under its old description, which its job still shows.
DIFFERENCE = f"""
INSERT INTO rate_difference ({_SPAN}, {_TERMS}, generation, revision, units, "user", gpu_model)
WITH before AS (
    SELECT record_id, min(started) AS started, max(finish) AS finish FROM rate_before GROUP BY record_id
), sides AS (
    SELECT {_of("r", _SPAN)}, {_of("r", _TERMS)}, r.units AS stands, 0 AS wanted
    FROM before b CROSS JOIN LATERAL (
        SELECT * FROM billing_ratedusage u WHERE u.record_id = b.record_id
          AND u.service_month >= date_trunc('month', to_timestamp(b.started) AT TIME ZONE 'UTC')::date
          AND u.service_month <= (to_timestamp(b.finish) AT TIME ZONE 'UTC')::date OFFSET 0
    ) r
    UNION ALL
    SELECT {_of("w", _SPAN)}, {_of("o", _TERMS)}, 0, w.units FROM rate_wanted w JOIN rate_offer o USING (offer_id)
), other AS MATERIALIZED (
    SELECT {_SPAN}, {_TERMS}, sum(stands)::bigint AS stands, sum(wanted)::bigint AS wanted
    FROM sides GROUP BY {_SPAN}, {_TERMS}
    HAVING sum(stands) <> sum(wanted) OR record_id IN (SELECT record_id FROM rate_before WHERE redescribed)
), change AS (
    SELECT o.*, -o.stands AS units, b."user", b.gpu_model FROM other o JOIN rate_before b USING (record_id, tenant_id)
    WHERE o.stands <> 0
    UNION ALL
    SELECT o.*, o.wanted, u."user", u.gpu_model FROM other o JOIN usage_input u ON u.record_id = o.record_id
    WHERE o.wanted <> 0
), last AS (  -- of all months and former owners, or a cut that comes and goes would meet its own past
    SELECT c.record_id, max(r.generation) AS generation FROM (SELECT DISTINCT record_id FROM change) c
    CROSS JOIN LATERAL (SELECT generation FROM billing_ratedusage u WHERE u.record_id = c.record_id OFFSET 0) r
    GROUP BY c.record_id
)
SELECT {_of("c", _SPAN)}, {_of("c", _TERMS)}, coalesce(last.generation, 0) + 1, u.revision, c.units, c."user",
       c.gpu_model
FROM change c JOIN usage_input u USING (record_id) LEFT JOIN last USING (record_id);
ANALYZE rate_difference (record_id, price_id)
"""  # noqa: S608 - built from constants

# The terms of both sides as offers, then the changes that refer to them.
CHANGES = f"""
INSERT INTO rate_offer (offer_id, {_TERMS}, timezone, unit_price, counted)
SELECT (SELECT count(*) FROM rate_offer) + row_number() OVER (), d.*, p.timezone, c.unit_price,
       d.resource = 'gpu' OR d.verdict = 'charged'
FROM (SELECT DISTINCT {_TERMS} FROM rate_difference) d
JOIN billing_billingperiod p ON p.id = d.period_id LEFT JOIN billing_price c ON c.id = d.price_id;
ANALYZE rate_offer (offer_id, price_id);
INSERT INTO {_CHANGED}
SELECT {_of("d", "record_id, service_from, service_to, units")}, o.offer_id, d.share_num, d.share_den,
       nextval('billing_ratedusage_id_seq'), d.generation, d.revision,
       date_trunc('month', to_timestamp(d.service_from) AT TIME ZONE 'UTC')::date, o.counted, d."user", d.gpu_model
FROM rate_difference d JOIN rate_offer o
  ON o.account_id IS NULL AND coalesce(o.version_id, 0) = coalesce(d.version_id, 0)
 AND coalesce(o.price_id, 0) = coalesce(d.price_id, 0)
 AND (o.resource, o.tenant_id, o.project_id, o.period_id, o.verdict)
   = (d.resource, d.tenant_id, d.project_id, d.period_id, d.verdict);
ANALYZE rate_change (record_id, offer_id)
"""  # noqa: S608 - built from constants
