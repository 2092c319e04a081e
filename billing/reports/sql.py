"""The statements of a report: each reads every rated row, run and hour once, and gives a row per group and price."""

from __future__ import annotations

from billing.reports.shapes import By
from clusters.usage import active
from clusters.usage_reports import HOURS, RUNS, busy_in

KEYS: dict[By, tuple[str, ...]] = {
    By.TENANT: ("tenant_id",),
    By.PROJECT: ("tenant_id", "project_id"),
    By.NAMESPACE: ("cluster", "account"),
    By.POD: ("owner", "pod"),
    By.MODEL: ("gpu_model",),
    By.USER: ('"user"',),
}
"""The columns that make a group."""

MORE_MEMORY = "SELECT set_config('work_mem', '64MB', true)"  # a period is sorted and joined as a whole

# A tenant's own sight of runs and hours: views that name it as the policies of row level security do. Each row is
# looked up by itself, since such a view is otherwise made in full.
_OWN_RUN = "CROSS JOIN LATERAL (SELECT * FROM billing_ownrun v WHERE v.record_id = r.record_id OFFSET 0) u"
_OWN_HOURS = (
    "LATERAL (SELECT * FROM billing_ownhour v WHERE v.record_id = s.record_id"
    " AND v.hour < s.until AND v.hour > s.since - 3600 OFFSET 0)"
)

# Rows that were taken back again leave nothing. Only GPUs, and whatever else is charged.
_RATED = """
rated AS MATERIALIZED (
    SELECT record_id, tenant_id, project_id, resource, verdict, price_id, service_from, service_to, share_num,
           share_den, sum(units) AS units
    FROM billing_ratedusage
    WHERE service_month >= %(first_month)s AND service_month <= %(last_month)s
      AND service_from < %(until)s AND service_to > %(since)s AND (resource = 'gpu' OR verdict = 'charged'){whose}
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 HAVING sum(units) <> 0
)"""

_SINCE, _UNTIL = "greatest(r.service_from, %(since)s)", "least(r.service_to, %(until)s)"
_RUN = 'u.cluster, u.account, u."user", u.gpu_model, u.gpus, u.started, u.finish, u.suspended'

# Units are a whole number of them for each active second: what the period cuts holds its part of those.
_OWNED = f"""
    SELECT r.record_id, r.tenant_id, r.project_id, r.resource = 'gpu' AS gpu, r.verdict AS standing, r.price_id,
           {_SINCE} AS since, {_UNTIL} AS until, r.share_num, r.share_den, {_RUN},
           CASE WHEN r.service_from >= %(since)s AND r.service_to <= %(until)s THEN r.units
                ELSE coalesce(div(r.units * {active(_SINCE, _UNTIL, "u")},
                                  nullif({active("r.service_from", "r.service_to", "u")}, 0)), 0) END AS held
    FROM rated r {{run}}"""

_HELD = "int8range(greatest(u.started, %(since)s), least(u.finish, %(until)s))"

_UNASSIGNED = f"""
    UNION ALL
    SELECT u.record_id, NULL, NULL, true, 'unassigned', NULL, lower(gap), upper(gap), u.share_num, u.share_den, {_RUN},
           u.gpus::numeric * {active("lower(gap)", "upper(gap)", "u")}
    FROM {RUNS} u LEFT JOIN (
        SELECT account_id,
               range_agg(int8range(extract(epoch FROM since)::bigint, extract(epoch FROM until)::bigint)) AS owned
        FROM tenants_ownership GROUP BY account_id
    ) c ON c.account_id = u.account_id
    CROSS JOIN LATERAL unnest(int8multirange({_HELD}) - coalesce(c.owned, '{{{{}}}}')) AS gap
    WHERE u.cluster_id = %(cluster)s AND u.gpus > 0 AND u.started < %(until)s AND u.finish > %(since)s
      AND (c.owned IS NULL OR NOT c.owned @> {_HELD})"""

_PIECE = """
piece AS MATERIALIZED (
    SELECT p.*, l.currency, c.unit_price FROM ({pieces}
    ) p LEFT JOIN billing_price c ON c.id = p.price_id LEFT JOIN billing_planversion v ON v.id = c.version_id
    LEFT JOIN billing_plan l ON l.id = v.plan_id
    WHERE p.held > 0
)"""

# Of runs only those that cost most are told one by one; the others are one row.
_SHOWN = """
, first AS (
    SELECT record_id FROM piece GROUP BY record_id
    ORDER BY coalesce(sum(held * share_num * unit_price / share_den), 0) DESC,
             sum(held * share_num / share_den) FILTER (WHERE gpu) DESC NULLS LAST, record_id LIMIT %(limit)s
), shown AS (
    SELECT p.*, CASE WHEN f.record_id IS NOT NULL THEN p.tenant_id END AS owner, f.record_id AS pod
    FROM piece p LEFT JOIN first f USING (record_id)
)"""

_SUMS = """
SELECT CASE WHEN gpu THEN 'gpu' ELSE 'other' END, {keys}, standing, currency, price_id, share_den, NULL, NULL,
       sum(held * share_num), NULL
FROM {shown} GROUP BY {keys}, standing, currency, price_id, share_den, gpu
UNION ALL
SELECT 'busy', {keys}, standing, currency, price_id, share_den, source, metric, sum(busy * share_num),
       sum(covered * share_num)
FROM ({busy}) b GROUP BY {keys}, standing, currency, price_id, share_den, source, metric
UNION ALL
SELECT 'jobs', {keys}, standing, currency, NULL, NULL, NULL, NULL, count(DISTINCT record_id), NULL
FROM {shown} WHERE gpu GROUP BY {keys}, standing, currency
UNION ALL
SELECT 'all', {none}, NULL, NULL, NULL, NULL, NULL, NULL, count(DISTINCT record_id), NULL FROM piece WHERE gpu
"""

_COSTLIEST = """
, ranked AS (
    SELECT {keys}, currency, record_id,
           row_number() OVER (PARTITION BY {keys}, currency
                              ORDER BY sum(held * share_num * unit_price / share_den) DESC, record_id) AS place
    FROM piece WHERE gpu AND standing = 'charged' GROUP BY {keys}, currency, record_id
)
SELECT {each}, k.currency, k.record_id, k.place, p.price_id, p.share_den, sum(p.held * p.share_num)
FROM ranked k JOIN piece p ON p.record_id = k.record_id AND p.currency = k.currency AND {same}
WHERE k.place <= %(costliest)s AND p.gpu AND p.standing = 'charged'
GROUP BY {each}, k.currency, k.record_id, k.place, p.price_id, p.share_den
ORDER BY k.place
"""


# Rows of one stretch whose seconds are priced by use: how busy it was is told once, and in seconds alone.
_ONCE = """(
    SELECT * FROM (
        SELECT {columns}, CASE WHEN count(*) OVER each = 1 THEN price_id END AS price_id,
               row_number() OVER (PARTITION BY record_id, since, until ORDER BY price_id) AS place,
               min(standing) OVER each = max(standing) OVER each AS alike
        FROM {shown} WHERE gpu WINDOW each AS (PARTITION BY record_id, since, until)
    ) stretch WHERE place = 1 AND alike
)"""


def sums(by: By, *, own: bool, by_use: bool = False) -> str:
    """(part, key …, standing, currency, price, share_den, source, metric, a, b) of a period.

    The part `gpu` has in `a` Σ units × seconds × share_num of GPUs, `other` of anything else that is charged; `busy`
    the same of what devices worked, and in `b` of what was covered; `jobs` counts those that held GPUs, and `all` them
    over all groups. `own`: inside a tenant's scope, which knows no cluster. `by_use`: some prices are by use.
    """
    shown = "shown" if by is By.POD else "piece"
    kept = (*KEYS[by], "standing", "currency", "price_id", "share_num", "share_den")
    spans = f"(SELECT * FROM {shown} WHERE gpu)"
    if by_use:
        held = ("record_id", "since", "until", "gpus", "started", "finish", "suspended")
        columns = dict.fromkeys(column for column in (*kept, *held) if column != "price_id")
        spans = _ONCE.format(columns=", ".join(columns), shown=shown)
    busy = busy_in(spans, keep=kept, hours=_OWN_HOURS if own else HOURS)
    return (
        _pieces(own=own)
        + (_SHOWN if by is By.POD else "")
        + _SUMS.format(
            keys=", ".join(KEYS[by]), none=", ".join("NULL" for _ in KEYS[by]), shown=shown, busy=busy
        )
    )


def costliest(by: By, *, own: bool) -> str:
    """(key …, currency, record, place, price, share_den, Σ units × seconds × share_num) of a group's costliest jobs."""
    keys = KEYS[by]
    return _pieces(own=own) + _COSTLIEST.format(
        keys=", ".join(keys),
        each=", ".join(f"k.{key}" for key in keys),
        same=" AND ".join(f"p.{key} IS NOT DISTINCT FROM k.{key}" for key in keys),
    )


def described(*, own: bool) -> str:
    """(record, cluster, account, user, job, name, model) of runs."""
    runs = "billing_ownrun" if own else RUNS
    return f"""
    SELECT record_id, cluster, account, "user", job_id, name, gpu_model FROM {runs} u WHERE record_id = ANY (%s)
    """


def _pieces(*, own: bool) -> str:
    rated = _RATED.format(
        whose=" AND tenant_id = %(tenant)s" if own else " AND tenant_id = coalesce(%(tenant)s, tenant_id)"
    )
    run = _OWN_RUN if own else f"JOIN {RUNS} u ON u.record_id = r.record_id AND u.cluster_id = %(cluster)s"
    pieces = _OWNED.format(run=run) + (
        "" if own else _UNASSIGNED.format() + " AND %(tenant)s::bigint IS NULL"
    )
    return f"WITH {rated.strip()}, {_PIECE.format(pieces=pieces).strip()}"
