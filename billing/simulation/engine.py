"""What usage would come to: rated by the engine's own statements into tables that end with the transaction.

Nobody's lock is taken, so whatever is supposed, usage goes on being taken in and rated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from django.db import connection

from billing.catalog import billing_periods
from billing.catalog.terms import Terms
from billing.invoicing import charges
from billing.invoicing.charges import ChargeInputs, InOrder
from billing.invoicing.statement_rows import priced
from billing.models import BillingPeriod, Price
from billing.models.plans import priced_meter
from billing.rating import engine
from billing.rules.money import Money
from billing.rules.period import Period
from billing.rules.statement_lines import Key as StatementKey
from billing.rules.statement_lines import LineKey
from clusters import temp_tables
from portal.prepared import prepared_cursor

Ordered = Callable[[BillingPeriod, Collection[int], Fraction], Mapping[int, Fraction]]
"""How an allowance is used in order of time: see `billing.catalog.allowances`."""

# Cuts are kept only where an allowance has to be used in order of time.
_KEEP = """
INSERT INTO suppose_cut
SELECT o.tenant_id, o.period_id, o.price_id, o.service_month, w.record_id, w.service_from, w.service_to, w.units,
       w.share_num, w.share_den, o.payer_id
FROM rate_cut w JOIN rate_offer o USING (offer_id) JOIN billing_price p ON p.id = o.price_id
WHERE o.period_id = ANY (%(periods)s) AND p.allowance_id IS NOT NULL
"""

_SUMS = """
SELECT o.tenant_id, o.period_id, p.name, o.resource, o.verdict, o.price_id,
       CASE WHEN o.verdict = 'unpriced' THEN u.gpu_model ELSE '' END, o.payer_id, w.share_den,
       sum(w.units::numeric * w.share_num)
FROM rate_cut w JOIN rate_offer o USING (offer_id) JOIN usage_input u USING (record_id)
JOIN tenants_project p ON p.id = o.project_id
WHERE o.period_id = ANY (%(periods)s) AND o.verdict <> 'waived'
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
"""


class Used(NamedTuple):
    """Whose use it is, in which period, at which price; None where no price covers it."""

    tenant: int
    period: int
    project: str
    resource: str
    price: int | None
    gpu_model: str  # of what is unpriced alone
    payer: int | None = None  # who pays, where that is another tenant


@dataclass(frozen=True, slots=True)
class Sum:
    """Resource-seconds under a key."""

    key: Used
    seconds: Fraction


def prepare() -> None:
    """Begin: once per transaction, before the first `sums`."""
    with connection.cursor() as cursor:
        cursor.execute(temp_tables.sql.SUPPOSE)


def sums(periods: Iterable[int], *, in_order: bool) -> list[Sum]:
    """What the records in `usage_input` come to in these billing periods, charged or unpriced.

    `in_order` keeps their cuts for `allowances.in_order_supposed`. Projects of a tenant have their names alone.
    """
    engine.suppose()
    values = {"periods": list(periods)}
    with connection.cursor() as cursor:
        if in_order:
            cursor.execute(_KEEP, values)
        cursor.execute(_SUMS, values)
        rows = cursor.fetchall()
    return [
        Sum(Used(tenant, period, project, resource, price, model, payer), Fraction(int(units), share_den))
        for tenant, period, project, resource, _, price, model, payer, share_den, units in rows
    ]


def count_cuts() -> None:
    """Between the last `sums` and `allowances.in_order_supposed`, where many records were supposed.

    Who reads cuts reads them once per tenant, period and allowance: by the index, of which the planner has to know.
    """
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE suppose_cut")


def added(sums: Iterable[Sum]) -> dict[Used, Fraction]:
    """By key."""
    totals: dict[Used, Fraction] = {}
    for sum_ in sums:
        totals[sum_.key] = totals.get(sum_.key, Fraction(0)) + sum_.seconds
    return totals


@dataclass(frozen=True, slots=True)
class Owing:
    """What a tenant owes for some periods, in whole minor units, and the books that say so."""

    amounts: Mapping[StatementKey, Money]
    books: ChargeInputs


def rated_use(
    periods: Iterable[int], prices: Iterable[int] = ()
) -> tuple[dict[Used, Fraction], dict[int, Price]]:
    """What is charged in these billing periods as it is rated, wallets' use included. One query.

    And by id its prices, and these.
    """
    used: dict[Used, Fraction] = defaultdict(Fraction)
    by_id = {}
    with prepared_cursor() as cursor:
        cursor.execute(_RATED, {"periods": list(periods), "prices": list(prices)})
        for price, _, *columns in priced(cursor):
            by_id[price.pk] = price
            rows = zip(*(column or () for column in columns), strict=True)
            for tenant, period, project, resource, payer, share_den, units in rows:
                key = Used(tenant, period, project, resource, price.pk, "", payer)
                used[key] += Fraction(int(units), share_den)
    return dict(used), by_id


_RATED = """
WITH used AS MATERIALIZED (
    SELECT t.tenant_id, t.period_id, p.name, t.resource, t.price_id, t.payer_id, t.share_den, t.units
    FROM billing_periodtotal t JOIN tenants_project p ON p.id = t.project_id
    WHERE t.period_id = ANY (%(periods)s::bigint[]) AND t.verdict = 'charged' AND t.price_id IS NOT NULL
), by_price AS (
    SELECT price_id, array_agg(tenant_id), array_agg(period_id), array_agg(name), array_agg(resource),
           array_agg(payer_id), array_agg(share_den), array_agg(units)
    FROM used GROUP BY price_id
)
SELECT c.*, v.*, p.*, u.* FROM billing_price c JOIN billing_planversion v ON v.id = c.version_id
JOIN billing_plan p ON p.id = v.plan_id LEFT JOIN by_price u ON u.price_id = c.id
WHERE c.id = ANY (%(prices)s::bigint[] || ARRAY(SELECT price_id FROM used))
"""


def paid_by(used: Mapping[Used, Fraction], payer: int | None) -> dict[Used, Fraction]:
    """Of that use what `payer` pays; None: what tenants pay themselves."""
    return {key: seconds for key, seconds in used.items() if key.payer == payer}


def owed_by_tenant(
    periods: Iterable[BillingPeriod],
    used: Mapping[Used, Fraction],
    prices: Mapping[int, Price],
    terms_by_tenant: Mapping[int, Terms],
    in_order: Ordered,
) -> dict[int, Owing]:
    """By tenant what such use in its periods costs, with its terms: by the rule of the statement, at `prices`."""
    by_tenant: dict[int, dict[Period, BillingPeriod]] = defaultdict(dict)
    for period in periods:
        by_tenant[period.tenant_id][billing_periods.as_rule(period)] = period
    seconds: dict[int, dict[LineKey, Fraction]] = defaultdict(dict)
    services = {period.pk: rule for own in by_tenant.values() for rule, period in own.items()}
    for key, value in used.items():
        if key.price is not None:
            line = LineKey(services[key.period], key.project, priced_meter(prices[key.price]), key.price)
            seconds[key.tenant][line] = value
    return {
        tenant: _owing(
            ChargeInputs(
                used=seconds[tenant],
                billed={},
                prices=prices,
                period=max(own),
                periods=sorted(own),
                terms=terms_by_tenant.get(tenant),
                in_order=_by_period(own, in_order),
            )
        )
        for tenant, own in by_tenant.items()
    }


def _owing(books: ChargeInputs) -> Owing:
    amounts: dict[StatementKey, Money] = {}
    for key, owed in charges.calculate_charges(books).items():
        if isinstance(key, LineKey):
            amounts[key] = owed.amount(currency_of(books.prices[key.price_id]))
        elif owed.share is not None:
            amounts[key] = owed.share.amount
    return Owing(amounts, books)


def currency_of(price: Price) -> str:
    """That of its plan."""
    return price.version.plan.currency


def _by_period(own: Mapping[Period, BillingPeriod], in_order: Ordered) -> InOrder:
    return lambda period, use, available: in_order(own[period], list(use), available)
