"""The statements by which `rating` finds out which terms hold for which usage when, and at which price."""

from __future__ import annotations

from collections.abc import Sequence

from billing.models.plans import SELECTORS


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


# By which of them any price of the plans concerned selects, in their order.
SELECTED = f"""
SELECT {", ".join(f"coalesce(bool_or({column} <> '{{}}'), false)" for column in SELECTORS.values())}
FROM billing_price WHERE version_id IN (SELECT version_id FROM rate_span)
"""  # noqa: S608 - built from constants


def offers(selected: Sequence[str]) -> str:
    """The statement that fills `rate_offer`: what usage costs in each span, per shape, not per record.

    Shapes differ in the attributes that a price selects by, and in no other. Offers are numbered in order of time.
    """
    shape = "".join(f", {attribute}" for attribute in selected)
    fits = "".join(
        f" AND (c.{SELECTORS[attribute]} = '{{}}' OR h.{attribute} = ANY (c.{SELECTORS[attribute]}))"
        for attribute in selected
    )
    return _OFFERS.format(shape=shape, fits=fits)


_DAY = "(to_timestamp(s.since) AT TIME ZONE s.timezone)::date"

_OFFERS = f"""
INSERT INTO rate_offer (offer_id, account_id{{shape}}, since, until, service_month, resource, tenant_id, project_id,
    period_id, timezone, version_id, price_id, unit_price, verdict, counted, second_cost)
SELECT row_number() OVER (ORDER BY since), o.*, resource = 'gpu' OR verdict = 'charged',
       unit_price / (CASE resource WHEN 'gpu' THEN 3600 WHEN 'cpu' THEN 3600000 ELSE 3686400 END)::numeric(30)
FROM (
    SELECT h.*, s.since, s.until, date_trunc('month', to_timestamp(s.since) AT TIME ZONE 'UTC')::date, r.resource,
           s.tenant_id, s.project_id, s.period_id, s.timezone, s.version_id,
           CASE WHEN r.resource = ANY (s.charges) THEN c.id END,
           CASE WHEN r.resource = ANY (s.charges) THEN c.unit_price END AS unit_price,
           CASE WHEN s.version_id IS NULL THEN 'unpriced'
                WHEN NOT r.resource = ANY (s.charges) THEN 'waived'
                WHEN c.id IS NULL THEN 'unpriced' ELSE 'charged' END AS verdict
    FROM rate_span s
    JOIN (SELECT DISTINCT account_id{{shape}} FROM usage_input) h ON h.account_id = s.account_id
    CROSS JOIN (VALUES ('gpu'), ('cpu'), ('memory')) AS r (resource)
    LEFT JOIN LATERAL (
        SELECT c.id, c.unit_price FROM billing_price c
        WHERE c.version_id = s.version_id AND c.resource = r.resource
          AND c.valid_from <= {_DAY} AND (c.valid_until IS NULL OR c.valid_until > {_DAY}){{fits}}
        ORDER BY c.specificity DESC, c.position, c.id LIMIT 1
    ) c ON true
) o;
ANALYZE rate_offer (offer_id, account_id{{shape}})
"""  # noqa: S608 - built from constants
