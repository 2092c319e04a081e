"""The statements by which `rating` finds out which terms hold for which usage when, and at which price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from billing.models.plans import SELECTORS, USES
from billing.rating.resources_sql import RESOURCES, rated

USE = "use"


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


def midnights(days: str) -> str:
    """SQL for the epochs, as `at`, of these days' first instants: (day) rows of a tenant `own.tenant_id`.

    Each by the zone of the billing period that it lies in: a tenant that moves keeps the borders that it had.
    """
    return f"""
        SELECT d.at FROM (
            SELECT DISTINCT p.timezone FROM billing_billingperiod p WHERE p.tenant_id = own.tenant_id
        ) z, LATERAL ({days}) AS x (day), LATERAL (SELECT {midnight("x.day", "z.timezone")} AS at) d
        WHERE d.at > own.s AND d.at < own.e AND EXISTS (
            SELECT FROM billing_billingperiod p WHERE p.tenant_id = own.tenant_id AND p.timezone = z.timezone
                AND p.start <= to_timestamp(d.at) AND p."end" > to_timestamp(d.at))"""


_DAYS_OF_PLANS = """
    SELECT DISTINCT days.day FROM billing_subscription sub JOIN billing_planversion v ON v.plan_id = sub.plan_id
    LEFT JOIN billing_price c ON c.version_id = v.id,
    LATERAL (VALUES (v.effective_from), (c.valid_from), (c.valid_until)) AS days (day)
    WHERE sub.tenant_id = own.tenant_id AND days.day IS NOT NULL"""

_DAYS_OF_PAYERS = """
    SELECT days.day FROM billing_payer y, LATERAL (VALUES (y.since), (y.until)) AS days (day)
    WHERE y.tenant_id = own.tenant_id AND days.day IS NOT NULL"""

# Elementary spans of each account: cut at every border that could change owner, payer, period or terms, so that
# within one span everything but the shape of the usage is constant. UTC months are borders too: a rated row
# lies in one month, so that the conservation sums of a month need no clipping.
SPANS = f"""
INSERT INTO rate_span
WITH reach AS (
    SELECT account_id, min(started) AS lo, max(finish) AS hi FROM usage_input
    WHERE started IS NOT NULL GROUP BY account_id
), own AS (
    SELECT o.id, o.account_id, o.tenant_id, o.project_id,
           greatest(coalesce(extract(epoch FROM o.since)::bigint, r.lo), r.lo) AS s,
           least(coalesce(extract(epoch FROM o.until)::bigint, r.hi), r.hi) AS e
    FROM reach r JOIN tenants_ownership o ON o.account_id = r.account_id
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
        UNION ALL {midnights(_DAYS_OF_PLANS)}
        UNION ALL {midnights(_DAYS_OF_PAYERS)}
    ) b WHERE b.at > own.s AND b.at < own.e
), span AS (
    SELECT own.*, mark.at, lead(mark.at, 1, own.e) OVER (PARTITION BY own.id ORDER BY mark.at) AS until
    FROM own JOIN mark ON mark.id = own.id
)
SELECT s.account_id, s.tenant_id, s.project_id, p.timezone, s.at, s.until, p.id, v.id, v.charges,
       row_number() OVER (), NULL, y.payer_id
FROM span s
JOIN billing_billingperiod p ON p.tenant_id = s.tenant_id
    AND p.start <= to_timestamp(s.at) AND p."end" > to_timestamp(s.at)
LEFT JOIN billing_subscription sub ON sub.tenant_id = s.tenant_id
    AND extract(epoch FROM sub.since)::bigint <= s.at
    AND (sub.until IS NULL OR extract(epoch FROM sub.until)::bigint > s.at)
LEFT JOIN LATERAL (
    SELECT v.id, v.charges FROM billing_planversion v
    WHERE v.plan_id = sub.plan_id AND v.effective_from <= (to_timestamp(s.at) AT TIME ZONE p.timezone)::date
    ORDER BY v.effective_from DESC LIMIT 1
) v ON true
LEFT JOIN billing_payer y ON y.tenant_id = s.tenant_id AND y.since <= (to_timestamp(s.at) AT TIME ZONE p.timezone)::date
    AND (y.until IS NULL OR y.until > (to_timestamp(s.at) AT TIME ZONE p.timezone)::date)
WHERE s.until > s.at;
ANALYZE rate_span
"""


# By which of them any price of the plans concerned selects, in their order; whether any is for one tenant alone, and
# whether any is for hours of the week.
SELECTED = f"""
SELECT {", ".join(f"coalesce(bool_or({column} <> '{{}}'), false)" for column in SELECTORS.values())},
       coalesce(bool_or(tenant_id IS NOT NULL), false), coalesce(bool_or(hours <> '{{}}'), false)
FROM billing_price WHERE version_id IN (SELECT version_id FROM rate_span)
"""


@dataclass(frozen=True, slots=True)
class Selected:
    """What prices of the plans concerned differ by: only that makes a difference between usage."""

    attributes: Sequence[str]  # of runs
    by_use: bool
    of_one_tenant: bool
    in_hours: bool

    @classmethod
    def of(cls, row: Sequence[bool]) -> Self:
        """The answer to `SELECTED`."""
        *used, of_one_tenant, in_hours = row
        named = [name for name, use in zip(SELECTORS, used, strict=True) if use]
        return cls([name for name in named if name != USE], USE in named, of_one_tenant, in_hours)


def offers(selected: Selected) -> str:
    """The statement that fills `rate_offer`: what usage costs in each span, per shape, not per record.

    Shapes differ in the attributes that a price selects by, and in no other. Offers are numbered in order of time.
    Where prices hold in hours of the week, there is an offer for each set of them that is open at once; where some
    select by use, one for each use of GPUs.
    """
    shape = "".join(f", {attribute}" for attribute in selected.attributes)
    fits = "".join(
        f" AND (c.{SELECTORS[attribute]} = '{{}}' OR h.{attribute} = ANY (c.{SELECTORS[attribute]}))"
        for attribute in selected.attributes
    )
    if selected.of_one_tenant:
        fits += " AND (c.tenant_id IS NULL OR c.tenant_id = s.tenant_id)"
    if selected.in_hours:
        fits += " AND (c.hours = '{}' OR c.id = ANY (w.open))"
    columns, places, joins = "", "", ""
    if selected.in_hours:
        columns, places = ", span_id, open_id", ", s.span_id, w.open_id"
        joins = "LEFT JOIN rate_open w ON w.calendar_id = s.calendar_id"
    if selected.by_use:
        fits += " AND (c.uses = '{}' OR n.use = ANY (c.uses))"
        columns, places, joins = f"{columns}, use", f"{places}, n.use", f"{joins} {_USED}"
    return _OFFERS.format(shape=shape, fits=fits, columns=columns, places=places, opened=joins)


# A version that prices by use anywhere has the GPU-seconds of all of its usage told apart.
_USED = f"""CROSS JOIN LATERAL (SELECT unnest(CASE WHEN r.resource = 'gpu' AND EXISTS (
        SELECT 1 FROM billing_price x WHERE x.version_id = s.version_id AND x.uses <> '{{}}'
    ) THEN ARRAY[{", ".join(f"'{use}'" for use in USES)}] ELSE ARRAY[NULL] END) AS use) n"""

_DAY = "(to_timestamp(s.since) AT TIME ZONE s.timezone)::date"

_OFFERS = f"""
INSERT INTO rate_offer (offer_id, account_id{{shape}}, since, until{{columns}}, service_month, resource, tenant_id,
    project_id, period_id, timezone, version_id, payer_id, price_id, unit_price, verdict, counted, second_cost,
    terms_id)
SELECT o.*, resource = 'gpu' OR verdict = 'charged',
       unit_price / (CASE resource WHEN 'gpu' THEN 3600 WHEN 'billing' THEN 3600 WHEN 'cpu' THEN 3600000
                              ELSE 3686400 END)::numeric(30),
       min(offer_id) OVER (PARTITION BY tenant_id, payer_id, period_id, project_id, version_id, price_id, resource,
                                        verdict)
FROM (
    SELECT row_number() OVER (ORDER BY s.since) AS offer_id, h.*, s.since, s.until{{places}},
           date_trunc('month', to_timestamp(s.since) AT TIME ZONE 'UTC')::date, r.resource,
           s.tenant_id, s.project_id, s.period_id, s.timezone, s.version_id, s.payer_id,
           CASE WHEN r.resource = ANY (s.charges) THEN c.id END AS price_id,
           CASE WHEN r.resource = ANY (s.charges) THEN c.unit_price END AS unit_price,
           CASE WHEN s.version_id IS NULL THEN 'unpriced'
                WHEN NOT r.resource = ANY (s.charges) THEN 'waived'
                WHEN c.id IS NULL THEN 'unpriced' ELSE 'charged' END AS verdict
    FROM rate_span s
    JOIN (SELECT DISTINCT account_id{{shape}} FROM usage_input) h ON h.account_id = s.account_id
    JOIN (VALUES {RESOURCES}) AS r (resource) ON {rated("s.tenant_id", "r.resource")}
    {{opened}}
    LEFT JOIN LATERAL (
        SELECT c.id, c.unit_price FROM billing_price c
        WHERE c.version_id = s.version_id AND c.resource = r.resource
          AND c.valid_from <= {_DAY} AND (c.valid_until IS NULL OR c.valid_until > {_DAY}){{fits}}
        ORDER BY c.specificity DESC, c.position, c.id LIMIT 1
    ) c ON true
) o;
ANALYZE rate_offer (offer_id, account_id{{shape}})
"""
