"""Why a tenant's spend changed between two ranges of days: runs, their length, price, mix, and what is no usage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import Q

from billing.models import BillingPeriod
from billing.queries.accrued_charges import accrued_terms
from billing.queries.cost_explorer import CostQuery, Days, sql
from billing.queries.costs import cost, tag
from billing.queries.run_counts import MOST_RUNS, Counts, RunCounts, hold_many, load_run_counts, show_runs
from billing.queries.usage_series import DAY, MOST_ROWS, TooManyRowsError
from billing.rules.meters import SECONDS_PER_HOUR
from billing.rules.money import Money
from billing.rules.rounded_sums import rounded_parts
from billing.rules.spend_change import Use, parts_of, split_volume, total_use
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope

MOST_OPEN = 4  # periods that are not closed, whose terms are computed: the newest
ZERO = Fraction(0)


class PartKind(StrEnum):
    RUNS = "runs"  # more or fewer
    LENGTH = "length"  # of a run: what it used on average
    VOLUME = "volume"  # of what has no runs, or more than are counted
    PRICE = "price"
    MIX = "mix"
    OTHER = "other"  # fees, minimums, discounts, credits and lines by hand: what is no usage


@dataclass(frozen=True, slots=True)
class Part:
    """A reason, and by how much it changed the spend: rounded so that all parts add up.

    `values`, `resource`, `unit` and the quantities are those of its group; of what is no usage they are empty.
    """

    kind: PartKind
    amount: Money
    exact: Fraction
    values: tuple[str, ...] = ()
    resource: str = ""
    unit: str = ""
    earlier: Fraction = ZERO  # units
    later: Fraction = ZERO
    price_since: date | None = None  # of a price: since when the one that changed most holds
    runs: RunCounts | None = None  # of runs and their length


@dataclass(frozen=True, slots=True)
class OtherCharge:
    """What is charged besides use, by kind of line or by the name of a term that is not billed yet."""

    kind: str  # "" of a term
    name: str
    earlier: Money
    later: Money


@dataclass(frozen=True, slots=True)
class SpendChange:
    """Of one currency: both totals, rounded, and the parts that their difference is made of, the largest first.

    Usage is at its price per unit, where tiers or an allowance decide at the first unit's (`by_total`). Where runs are
    not counted (`runs_counted`), their number and length are one part.
    """

    earlier: Money
    later: Money
    parts: list[Part]
    others: list[OtherCharge]
    by_total: bool
    runs_counted: bool

    @property
    def difference(self) -> Money:
        return self.later - self.earlier

    def sum_of(self, kind: PartKind) -> Money:
        return sum(
            (part.amount for part in self.parts if part.kind is kind), Money.zero(self.earlier.currency)
        )


@dataclass(slots=True)
class _Item:
    quantity: Fraction = ZERO
    cost: Fraction = ZERO
    since: date | None = None

    @property
    def use(self) -> Use:
        return Use(self.quantity, self.cost)


_Items = dict[tuple[str, str], _Item]  # by GPU model or dimensions, and what else the price holds for


@dataclass(slots=True)
class _Group:
    """One group's use of one unit in one currency."""

    earlier: _Items
    later: _Items
    by_total: bool = False


_Key = tuple[str, tuple[str, ...], str, str]  # currency, group, resource, unit


def explain_with_runs(
    tenant: Tenant, query: CostQuery, *, others: bool, most_runs: int
) -> tuple[list[SpendChange], str]:
    """As `explain_change`, with the number of runs, also of dropped months. In the tenant's scope.

    Also returns months, as text, whose files cannot be read here or have more jobs than a page reads: no runs are
    counted then, and volume is one part. Raises RunsBusyError, too.
    """
    if most_runs > MOST_RUNS:
        hold_many(tenant)
    uncounted = show_runs(tenant, query)
    with acting_scope(tenant):
        return explain_change(
            tenant, query, others=others, most_runs=0 if uncounted else most_runs
        ), uncounted


def explain_change(
    tenant: Tenant, query: CostQuery, *, others: bool, most_runs: int = 0, counts: Counts | None = None
) -> list[SpendChange]:
    """By currency; empty where neither range has any charge. Raises TooManyRowsError.

    `others`: with what documents charge besides use, which not everybody may read, and what open periods will. It is
    left out where a filter is set: nothing tells whose fee it is. By `counts` volume is split into the number of runs
    and their length; or they are counted, up to `most_runs`, by one query. In the scope of acting, four queries and
    those of a statement for open periods.
    """
    groups = _groups(tenant, query)
    if most_runs and groups:
        counts = load_run_counts(tenant, query, most=most_runs)
    rows = _others(tenant, query) if others and not query.filters else []
    currencies = sorted({key[0] for key in groups} | {row.later.currency for row in rows})
    return [
        _of_currency(
            currency,
            {key: group for key, group in groups.items() if key[0] == currency},
            counts,
            [row for row in rows if row.later.currency == currency],
        )
        for currency in currencies
    ]


def _groups(tenant: Tenant, query: CostQuery) -> Mapping[_Key, _Group]:
    with connection.cursor() as cursor:
        cursor.execute(sql.ITEMS, query.values(tenant))
        rows = cursor.fetchall()
    if len(rows) > MOST_ROWS:
        raise TooManyRowsError
    groups: dict[_Key, _Group] = defaultdict(lambda: _Group(defaultdict(_Item), defaultdict(_Item)))
    for earlier, key1, key2, resource, model, place, share_den, units, since, *price in rows:
        price_tag = tag(*price)
        seconds = Fraction(int(units), share_den)
        group = groups[price_tag.currency, (key1, key2)[: len(query.by)], resource, price_tag.meter.unit]
        group.by_total |= price_tag.by_total
        item = (group.earlier if earlier else group.later)[model, place]
        item.quantity += seconds / SECONDS_PER_HOUR
        item.cost += cost(price_tag, seconds).amount
        item.since = max(item.since or since, since)
    return groups


def _of_currency(
    currency: str,
    groups: Mapping[_Key, _Group],
    counts: Counts | None,
    others: Sequence[OtherCharge],
) -> SpendChange:
    parts = [part for key, group in sorted(groups.items()) for part in _parts(key, group, counts)]
    old_others = sum((row.earlier.amount for row in others), ZERO)
    new_others = sum((row.later.amount for row in others), ZERO)
    if others:
        parts.append(Part(PartKind.OTHER, Money.zero(currency), new_others - old_others))
    earlier = _cost(group.earlier for group in groups.values()) + old_others
    later = _cost(group.later for group in groups.values()) + new_others
    totals = Money(earlier, currency).rounded(), Money(later, currency).rounded()
    parts = [part for part in parts if part.exact]
    amounts = rounded_parts([part.exact for part in parts], totals[1] - totals[0])
    rounded = [replace(part, amount=amount) for part, amount in zip(parts, amounts, strict=True)]
    rounded.sort(key=lambda part: (-abs(part.amount.amount), -abs(part.exact), part.values, part.kind))
    return SpendChange(
        *totals,
        rounded,
        list(others),
        by_total=any(group.by_total for group in groups.values()),
        runs_counted=counts is not None or not groups,
    )


def _parts(key: _Key, group: _Group, counts: Counts | None) -> list[Part]:
    before = {item: one.use for item, one in group.earlier.items()}
    after = {item: one.use for item, one in group.later.items()}
    parts = parts_of(before, after)
    currency, values, resource, unit = key
    old, new = total_use(before), total_use(after)
    runs = counts(values, resource) if counts else None
    split = split_volume(parts.volume, old=old, new=new, runs=runs.runs) if runs else None
    whole = Part(
        PartKind.VOLUME,
        Money.zero(currency),
        parts.volume,
        values,
        resource,
        unit,
        old.quantity,
        new.quantity,
    )
    volume = [whole]
    if split:
        volume = [
            replace(whole, kind=kind, exact=exact, runs=runs)
            for kind, exact in zip((PartKind.RUNS, PartKind.LENGTH), split, strict=True)
        ]
    since = _price_since(group) if parts.price else None
    price = replace(whole, kind=PartKind.PRICE, exact=parts.price, price_since=since)
    return [*volume, price, replace(whole, kind=PartKind.MIX, exact=parts.mix)]


def _price_since(group: _Group) -> date | None:
    """Since when the price holds that changed the cost most; None where it was corrected in its place."""
    effects = {
        name: abs(one.cost - one.quantity * group.earlier[name].cost / group.earlier[name].quantity)
        for name, one in group.later.items()
        if name in group.earlier and group.earlier[name].quantity
    }
    name = max(sorted(effects), key=lambda one: effects[one], default=None)
    if name is None:
        return None
    since = group.later[name].since
    return since if since != group.earlier[name].since else None


def _cost(all_items: Any) -> Fraction:
    return sum((item.cost for items in all_items for item in items.values()), ZERO)


def _others(tenant: Tenant, query: CostQuery) -> list[OtherCharge]:
    """What documents charge besides use; of the newest open periods what their statement would."""
    rows: dict[tuple[str, str, str], list[Money]] = {}

    def add(kind: str, name: str, amount: Money, *, earlier: bool) -> None:
        zero = Money.zero(amount.currency)
        row = rows.setdefault((kind, name, amount.currency), [zero, zero])
        row[0 if earlier else 1] += amount

    periods = _open_periods(tenant, query)
    for period, terms in zip(periods, accrued_terms(tenant=tenant, periods=periods), strict=True):
        for name, amount in terms:
            for earlier, days in ((False, query.later), (True, query.earlier)):
                if _begins_in(period, days):
                    add("", name, amount.rounded(), earlier=earlier)
    values = query.values(tenant) | {"accrued": [period.pk for period in periods]}
    with connection.cursor() as cursor:
        cursor.execute(sql.LINES, values)
        for earlier, kind, currency, minor in cursor.fetchall():
            add(kind, "", Money.from_minor(minor, currency), earlier=earlier)
    return [OtherCharge(kind, name, *amounts) for (kind, name, _), amounts in rows.items()]


def _open_periods(tenant: Tenant, query: CostQuery) -> list[BillingPeriod]:
    """The newest that begin in one of the ranges. One query."""

    ranges = (query.later, query.earlier)
    nearby = Q()
    for days in ranges:  # by a day more, as zones differ from UTC
        nearby |= Q(start__gte=_midnight(days.first - DAY), start__lt=_midnight(days.end + DAY))
    newest = BillingPeriod.objects.filter(nearby, tenant=tenant, closed_at=None).order_by("-start")
    rows = [one for one in newest[: 2 * MOST_OPEN] if any(_begins_in(one, days) for days in ranges)]
    return rows[:MOST_OPEN]


def _begins_in(period: BillingPeriod, days: Days) -> bool:
    return days.first <= period.start.astimezone(ZoneInfo(period.timezone)).date() < days.end


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
