"""An allowance that several prices share, used in order of time.

The order is that of the cuts of jobs: by the second from which each is served, then by its record, its
end, price and share. It follows from the usage alone, so an allowance is used the same way whatever came first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from fractions import Fraction
from math import lcm
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db import connection

from billing.models import BillingPeriod, PeriodTotal


class Cut(NamedTuple):
    """A stretch [service_from, service_to) of a run that never was, as it would be rated.

    `units` are seconds of one resource in parts of it: `share_num` of `share_den` each.
    """

    tenant: int
    payer: int | None  # who pays, where that is another tenant
    period: int
    project: str
    resource: str
    verdict: str
    price: int | None
    gpu_model: str  # of what is unpriced alone
    service_month: date
    record: int
    service_from: int
    service_to: int
    units: int
    share_num: int
    share_den: int


class Included(NamedTuple):
    """What an allowance includes of the use at the prices that share it."""

    by_price: Mapping[int, Fraction]  # resource-seconds
    last: int | None  # the second from which the last cut is served; None of no use


# Whole numbers throughout: each cut is brought to the least common denominator of all shares.
_IN_ORDER = """
SELECT price_id, sum(least(amount, greatest(%(limit)s::numeric - before, 0))), max(service_from)
FROM (
    SELECT price_id, amount, service_from, sum(amount) OVER (
               ORDER BY service_from, record_id, service_to, price_id, share_num, share_den
               ROWS UNBOUNDED PRECEDING) - amount AS before
    FROM (
        SELECT price_id, service_from, record_id, service_to, share_num, share_den,
               sum(units)::numeric * share_num * (%(unit)s::numeric / share_den) AS amount
        FROM {source}
        WHERE tenant_id = %(tenant)s AND period_id = %(period)s AND price_id = ANY (%(prices)s)
          AND payer_id IS NOT DISTINCT FROM %(payer)s::bigint
          AND service_month >= date_trunc('month', %(start)s::timestamptz AT TIME ZONE 'UTC')::date
          AND service_month <= (%(end)s::timestamptz AT TIME ZONE 'UTC')::date
        GROUP BY price_id, service_from, record_id, service_to, share_num, share_den HAVING sum(units) <> 0
    ) cut
) ordered GROUP BY price_id
"""


def in_order(
    period: BillingPeriod, prices: Collection[int], available: Fraction, *, payer: int | None = None
) -> Mapping[int, Fraction]:
    """By price the resource-seconds of the tenant's use in the period that `available` ones include. Two queries.

    `payer`: of its use that this tenant pays; None: that it pays itself.
    """
    return included(period, prices, available, payer=payer).by_price


def included(
    period: BillingPeriod, prices: Collection[int], available: Fraction, *, payer: int | None = None
) -> Included:
    """As `in_order`, with where the use ends. Two queries."""
    return _in_order(period, prices, available, _shares(period, prices), "billing_ratedusage", payer)


def in_order_supposed(
    period: BillingPeriod, prices: Collection[int], available: Fraction, *, payer: int | None = None
) -> Mapping[int, Fraction]:
    """As `in_order`, of what usage is only supposed to be rated as: see `billing.simulation.engine`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT share_den FROM suppose_cut WHERE price_id = ANY (%s)", [list(prices)])
        shares = [share_den for (share_den,) in cursor.fetchall()]
    return _in_order(period, prices, available, shares, "suppose_cut", payer).by_price


def in_order_with(
    period: BillingPeriod,
    prices: Collection[int],
    available: Fraction,
    *,
    cuts: Sequence[Cut],
    payer: int | None = None,
) -> Mapping[int, Fraction]:
    """As `in_order`, of what is rated and of the cuts besides. Two queries."""
    shares = _shares(period, prices) | {cut.share_den for cut in cuts}
    values = {f"cut_{name}": [getattr(cut, name) for cut in cuts] for name in Cut._fields}
    return _in_order(period, prices, available, shares, _BOTH, payer, values).by_price


def followed_by(rated: Included, available: Fraction, cuts: Iterable[Cut]) -> Mapping[int, Fraction]:
    """As `in_order_with`, where all of these cuts, which share the allowance, come after what is rated."""
    by_price = dict(rated.by_price)
    left = available - sum(by_price.values(), Fraction(0))
    for cut in sorted(cuts, key=_place):
        if cut.price is None:
            continue
        part = min(Fraction(cut.units * cut.share_num, cut.share_den), left)
        by_price[cut.price] = by_price.get(cut.price, Fraction(0)) + part
        left -= part
    return by_price


def _place(cut: Cut) -> tuple[int, ...]:
    return cut.service_from, cut.record, cut.service_to, cut.price or 0, cut.share_num, cut.share_den


_BOTH = """(
    SELECT tenant_id, payer_id, period_id, price_id, service_month, record_id, service_from, service_to, units,
           share_num, share_den FROM billing_ratedusage
    UNION ALL
    SELECT * FROM unnest(
        %(cut_tenant)s::bigint[], %(cut_payer)s::bigint[], %(cut_period)s::bigint[], %(cut_price)s::bigint[],
        %(cut_service_month)s::date[], %(cut_record)s::bigint[], %(cut_service_from)s::bigint[],
        %(cut_service_to)s::bigint[], %(cut_units)s::bigint[], %(cut_share_num)s::int[], %(cut_share_den)s::int[])
) both_of"""


def _shares(period: BillingPeriod, prices: Collection[int]) -> set[int]:
    """Into how many parts the units are divided that were used at these prices."""
    totals = PeriodTotal.objects.filter(period=period, price_id__in=prices)
    return set(totals.values_list("share_den", flat=True))


def _in_order(
    period: BillingPeriod,
    prices: Collection[int],
    available: Fraction,
    shares: Iterable[int],
    source: str,
    payer: int | None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Included:
    unit = lcm(available.denominator, *shares)
    values: dict[str, Any] = {
        **more,
        "tenant": period.tenant_id,
        "payer": payer,
        "period": period.pk,
        "prices": list(prices),
        "start": period.start,
        "end": period.end,
        "unit": unit,
        "limit": int(available * unit),
    }
    with connection.cursor() as cursor:
        cursor.execute(_IN_ORDER.format(source=source), values)
        rows = cursor.fetchall()
    by_price = {price: Fraction(int(amount), unit) for price, amount, _ in rows}
    return Included(by_price, max((last for *_, last in rows), default=None))
