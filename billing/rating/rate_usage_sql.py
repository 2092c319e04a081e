"""The statements by which `rating` turns `usage_input` into what has to change; `rated_sql` writes it.

Tables that other sessions grow are looked up row by row (LATERAL … OFFSET 0): a plan that is good for
ten thousand records must not depend on when statistics of them were last gathered.
"""

from __future__ import annotations

from collections.abc import Iterator

from billing.rating.price_spans_sql import Selected
from billing.rating.resources_sql import amount, parts
from billing.rating.tariff_hours_sql import PIECES
from clusters.usage import active
from clusters.usage_reports import BUSY

# Session-local working tables, emptied at commit. An offer is the terms that usage of one resource is rated by; its
# span and shape are empty where only rows that stand already were rated by it. Of offers with the same terms, in other
# spans or for other shapes, each names the first as `terms_id`, so that rows are compared by a number.
# A batch has some ten thousand records, which fit into memory and are told by a small sample. That a look-up finds one
# row the planner does not see: it would make a bitmap for each, and compile them for longer than they take.
PREPARE = """
SET LOCAL work_mem = '32MB'; SET LOCAL default_statistics_target = 10;
SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off;
CREATE TEMP TABLE IF NOT EXISTS rate_span (
    account_id bigint NOT NULL, tenant_id bigint NOT NULL, project_id bigint NOT NULL, timezone text NOT NULL,
    since bigint NOT NULL, until bigint NOT NULL, period_id bigint NOT NULL, version_id bigint, charges text[],
    span_id int NOT NULL, calendar_id int, payer_id bigint
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_offer (
    offer_id int NOT NULL, terms_id int NOT NULL, account_id bigint, since bigint, until bigint,
    tenant_id bigint NOT NULL, project_id bigint NOT NULL, period_id bigint NOT NULL, version_id bigint,
    price_id bigint, service_month date, counted boolean NOT NULL, unit_price numeric, second_cost numeric,
    resource text NOT NULL, verdict text NOT NULL, timezone text NOT NULL, cluster text, queue text, qos text,
    priority_class text, gpu_model text, mig_profile text, state text, span_id int, open_id int, use text,
    payer_id bigint
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
CREATE TEMP TABLE IF NOT EXISTS rate_standing (
    record_id bigint NOT NULL, generation int NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL,
    units bigint NOT NULL, share_num int NOT NULL, share_den int NOT NULL, terms_id int, resource text,
    tenant_id bigint, project_id bigint, period_id bigint, version_id bigint, price_id bigint, verdict text,
    payer_id bigint
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_day (
    timezone text NOT NULL, utc_day bigint NOT NULL, day date NOT NULL, since bigint NOT NULL, until bigint NOT NULL,
    first boolean NOT NULL
) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS rate_day_since ON rate_day (timezone, since) WHERE first;
CREATE TEMP TABLE IF NOT EXISTS rate_hour (
    timezone text NOT NULL, hour int NOT NULL, day date NOT NULL, since bigint NOT NULL, until bigint NOT NULL
) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS rate_hour_since ON rate_hour (timezone, since);
"""
TABLES = (
    "rate_span",
    "rate_offer",
    "rate_before",
    "rate_wanted",
    "rate_standing",
    "rate_change",
    "rate_day",
    "rate_hour",
)

# All locks are taken in order of id, as by every other holder of several. `ownership.assign` locks its account
# against the share lock; the weaker locks of foreign keys disturb neither.
LOCK_ACCOUNTS = "SELECT id FROM clusters_account WHERE id = ANY (%s) ORDER BY id FOR SHARE"

# Whoever pays for an owner too, be it for another time: what is rated for it to pay is covered by its invoices.
LOCK_OWNERS = """
WITH owner AS (SELECT tenant_id FROM tenants_ownership WHERE account_id = ANY (%s))
SELECT id FROM tenants_tenant WHERE id IN (
    SELECT tenant_id FROM owner UNION SELECT y.payer_id FROM billing_payer y WHERE y.tenant_id IN (TABLE owner)
) ORDER BY id FOR NO KEY UPDATE
"""

# Somebody may have come to pay while the locks were waited for.
PAYERS = "SELECT DISTINCT payer_id FROM billing_payer WHERE tenant_id = ANY (%s)"

# Their projects too: a job does not check by itself that it stays.
HOLD_PROJECTS = """
SELECT id FROM tenants_project
WHERE id IN (SELECT project_id FROM tenants_ownership WHERE account_id = ANY (%s)) ORDER BY id FOR KEY SHARE
"""

# A look at the numbers between the first and the last record, where asking for each costs as much as a total does.
MAY_BE_SHOWN = """
SELECT EXISTS (
    SELECT FROM (SELECT min(record_id) AS first, max(record_id) AS last FROM usage_input WHERE NOT fresh) u
    CROSS JOIN LATERAL (
        SELECT FROM billing_ratedjob r WHERE r.record_id >= u.first AND r.record_id <= u.last LIMIT 1
    ) j
)
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
WITH former AS (
    SELECT tenant_id FROM rate_before
    EXCEPT SELECT o.tenant_id FROM tenants_ownership o WHERE o.account_id IN (SELECT account_id FROM usage_input)
)
SELECT id FROM tenants_tenant WHERE id IN (
    SELECT tenant_id FROM former UNION SELECT y.payer_id FROM billing_payer y WHERE y.tenant_id IN (TABLE former)
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
    CROSS JOIN LATERAL (
        SELECT o.tenant_id AS id UNION SELECT y.payer_id FROM billing_payer y WHERE y.tenant_id = o.tenant_id
    ) w JOIN tenants_tenant t ON t.id = w.id
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


_AMOUNT = amount("o.resource")
_SHARE = f"""CASE o.resource WHEN 'gpu' THEN u.share_num ELSE 1 END, {parts("o.resource")}"""
_UNITS = f"{_AMOUNT} * {active('{since}', '{until}', 'u')}"

# Zero-length runs hold nothing: they have no cut, but stay visible as jobs.
_CUT = f"""
       u.record_id, greatest(u.started, {{since}}), least(u.finish, {{until}}), {_UNITS}, o.offer_id, {_SHARE}"""
_HOLDS = f"""
WHERE {_AMOUNT} > 0 AND (u.suspended = 0 OR {active("{since}", "{until}", "u")} > 0)"""

_OFFERED = """usage_input u JOIN rate_offer o
  ON o.account_id = u.account_id{shape} AND o.since < u.finish AND o.until > u.started{only}"""
_BESIDE = "usage_input u ON u.record_id = p.record_id JOIN rate_offer o ON o.offer_id = p.offer_id"

_OF_SPAN = {"since": "o.since", "until": "o.until"}
_OF_PIECE = {"since": "p.since", "until": "p.until"}

_INTO_WANTED = "rate_wanted (record_id, service_from, service_to, units, offer_id, share_num, share_den)"
_ANALYZE_WANTED = "ANALYZE rate_wanted (record_id, offer_id)"

_CHANGED = """rate_change (record_id, service_from, service_to, units, offer_id, share_num, share_den,
    id, generation, revision, service_month, counted, "user", gpu_model)"""
_NEW = """, nextval('billing_ratedusage_id_seq'), {generation}, u.revision, o.service_month, o.counted, u."user",
       u.gpu_model"""
_ANALYZE_UNRATED = "ANALYZE rate_change (record_id, offer_id)"

# Of a cut, the device-seconds of each use, those of the same terms together; more rows of one second are told apart by
# their generation.
_BY_USE = f"""
SELECT d.record_id, d.service_from, d.service_to, d.units, d.offer_id, {_SHARE}{{new}}
FROM (
    SELECT record_id, service_from, service_to, sum(units)::bigint AS units, min(offer_id) AS offer_id,
           row_number() OVER (PARTITION BY record_id, service_from ORDER BY terms_id, service_to) AS place
    FROM (
        SELECT p.record_id, greatest(u.started, p.since) AS service_from, least(u.finish, p.until) AS service_to,
               o.offer_id, o.terms_id,
               CASE o.use WHEN 'busy' THEN b.busy WHEN 'idle' THEN b.covered - b.busy
                          ELSE {_UNITS.format(**_OF_PIECE)} - b.covered END AS units
        FROM ({{pieces}}) p JOIN {_BESIDE} CROSS JOIN LATERAL ({BUSY.format(**_OF_PIECE)}) b
        {_HOLDS.format(**_OF_PIECE)}
    ) used GROUP BY record_id, service_from, service_to, terms_id HAVING sum(units) > 0
) d JOIN usage_input u ON u.record_id = d.record_id JOIN rate_offer o ON o.offer_id = d.offer_id"""


def wanted(selected: Selected) -> Iterator[str]:
    """What should stand, to be compared with what does.

    Statistics are of what is joined by; of all columns they take longer than the rows.
    """
    for cuts in _cuts(selected, new=""):
        yield f"INSERT INTO {_INTO_WANTED} {cuts}"
    yield _ANALYZE_WANTED


def wanted_of_unrated(selected: Selected) -> Iterator[str]:
    """Where nothing was rated before, all that should stand is new."""
    for cuts in _cuts(selected, new=_NEW):
        yield f"INSERT INTO {_CHANGED} {cuts}"
    yield _ANALYZE_UNRATED


def _cuts(selected: Selected, *, new: str) -> Iterator[str]:
    """One query, and more only where prices hold in hours of the week or depend on use."""
    shape = "".join(f" AND o.{attribute} = u.{attribute}" for attribute in selected.attributes)
    whole = " AND o.use IS NULL" if selected.by_use else ""
    always = " AND o.open_id IS NULL" if selected.in_hours else ""
    first = new.format(generation=1)
    offered = _OFFERED.format(shape=shape, only=always + whole)
    yield f"SELECT {_CUT.format(**_OF_SPAN)}{first} FROM {offered}{_HOLDS.format(**_OF_SPAN)}"
    if selected.in_hours:
        pieces = PIECES.format(shape=shape, only=whole)
        cut, holds = _CUT.format(**_OF_PIECE), _HOLDS.format(**_OF_PIECE)
        yield f"SELECT {cut}{first} FROM ({pieces}) p JOIN {_BESIDE}{holds}"
    if selected.by_use:
        used = " AND o.use IS NOT NULL"
        offered = _OFFERED.format(shape=shape, only=always + used)
        pieces = f"SELECT u.record_id, o.offer_id, o.since, o.until FROM {offered}"
        if selected.in_hours:
            pieces += f" UNION ALL {PIECES.format(shape=shape, only=used)}"
        yield _BY_USE.format(pieces=pieces, new=new.format(generation="d.place"))


_TERMS = "resource, tenant_id, project_id, period_id, version_id, price_id, verdict, payer_id"
_CUTS = "record_id, service_from, service_to, share_num, share_den"


def _of(alias: str, columns: str) -> str:
    return ", ".join(f"{alias}.{column.strip()}" for column in columns.split(","))


def _same_terms(one: str, other: str) -> str:
    always = "resource, tenant_id, project_id, period_id, verdict"
    return f"""({_of(one, always)}) = ({_of(other, always)})
    AND coalesce({one}.version_id, 0) = coalesce({other}.version_id, 0)
    AND coalesce({one}.price_id, 0) = coalesce({other}.price_id, 0)
    AND coalesce({one}.payer_id, 0) = coalesce({other}.payer_id, 0)"""


# What was ever rated of the records, in the months in which they lay or lie now: what stands is its sum, and beyond its
# generations a cut that comes and goes does not meet its own past. Terms are told only where no offer has them. Of
# offers the planner expects a single one to fit, and would compare every row with every offer.
STANDING = f"""
SET LOCAL enable_nestloop = off;
INSERT INTO rate_standing ({_CUTS}, units, generation, terms_id, {_TERMS})
SELECT {_of("r", _CUTS)}, r.units, r.generation, o.offer_id,
       {", ".join(f"CASE WHEN o.offer_id IS NULL THEN r.{column.strip()} END" for column in _TERMS.split(","))}
FROM usage_input u LEFT JOIN (
    SELECT record_id, min(started) AS started, max(finish) AS finish FROM rate_before GROUP BY record_id
) b USING (record_id) CROSS JOIN LATERAL (
    SELECT * FROM billing_ratedusage x WHERE x.record_id = u.record_id
      AND x.service_month >= date_trunc('month', to_timestamp(least(b.started, u.started)) AT TIME ZONE 'UTC')::date
      AND x.service_month <= (to_timestamp(greatest(b.finish, u.finish)) AT TIME ZONE 'UTC')::date OFFSET 0
) r LEFT JOIN rate_offer o ON o.offer_id = o.terms_id AND {_same_terms("o", "r")}
WHERE NOT u.fresh;
SET LOCAL enable_nestloop = on;
ANALYZE rate_standing (record_id, terms_id)
"""

# The terms that nothing is offered by any more, as offers.
FORMER_TERMS = f"""
INSERT INTO rate_offer (offer_id, terms_id, {_TERMS}, timezone, unit_price, counted)
SELECT f.id, f.id, {_of("f", _TERMS)}, p.timezone, c.unit_price, f.resource = 'gpu' OR f.verdict = 'charged'
FROM (
    SELECT (SELECT count(*) FROM rate_offer) + row_number() OVER () AS id, d.*
    FROM (SELECT DISTINCT {_TERMS} FROM rate_standing WHERE terms_id IS NULL) d
) f JOIN billing_billingperiod p ON p.id = f.period_id LEFT JOIN billing_price c ON c.id = f.price_id
"""

# A cut whose units differ is taken back and written anew, both whole, so that each row can be split over days
# by itself and a reversal splits exactly as what it reverses. Rated rows do not carry user and model: where one
# of them changed, all of the record is taken back under its old description, which its job still shows.
CHANGES = f"""
INSERT INTO {_CHANGED}
WITH side AS (
    SELECT {_CUTS}, terms_id, units AS stands, 0 AS wanted FROM rate_standing WHERE terms_id IS NOT NULL
    UNION ALL
    SELECT {_of("s", _CUTS)}, o.terms_id, s.units, 0 FROM rate_standing s JOIN rate_offer o
      ON o.account_id IS NULL AND {_same_terms("o", "s")} WHERE s.terms_id IS NULL
    UNION ALL
    SELECT {_of("w", _CUTS)}, o.terms_id, 0, w.units FROM rate_wanted w JOIN rate_offer o USING (offer_id)
), other AS (
    SELECT {_CUTS}, terms_id, sum(stands)::bigint AS stands, sum(wanted)::bigint AS wanted
    FROM side GROUP BY {_CUTS}, terms_id
    HAVING sum(stands) <> sum(wanted) OR record_id IN (SELECT record_id FROM rate_before WHERE redescribed)
    ORDER BY record_id
), change AS (
    SELECT d.*, -d.stands AS units, b."user", b.gpu_model FROM other d JOIN rate_offer o ON o.offer_id = d.terms_id
    JOIN rate_before b ON b.record_id = d.record_id AND b.tenant_id = o.tenant_id WHERE d.stands <> 0
    UNION ALL
    SELECT d.*, d.wanted, u."user", u.gpu_model FROM other d JOIN usage_input u ON u.record_id = d.record_id
    WHERE d.wanted <> 0
)
SELECT c.record_id, c.service_from, c.service_to, c.units, c.terms_id, c.share_num, c.share_den,
       nextval('billing_ratedusage_id_seq'), coalesce(g.last, 0) + row_number() OVER (
           PARTITION BY c.record_id, o.resource, c.service_from, c.units < 0 ORDER BY c.terms_id, c.service_to),
       u.revision,
       date_trunc('month', to_timestamp(c.service_from) AT TIME ZONE 'UTC')::date, o.counted, c."user", c.gpu_model
FROM change c
JOIN usage_input u ON u.record_id = c.record_id
JOIN rate_offer o ON o.offer_id = c.terms_id
LEFT JOIN (SELECT record_id, max(generation) AS last FROM rate_standing GROUP BY record_id) g
  ON g.record_id = c.record_id
"""

ANALYZE_CHANGES = "ANALYZE rate_change (offer_id)"
