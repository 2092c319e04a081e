"""What a tenant used and what it cost over time, in groups: exact, from what each day used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection

from billing.models import Resource
from billing.queries.costs import cost, per_currency, tag
from billing.rules.meters import SECONDS_PER_HOUR, CustomMeter
from billing.rules.money import Money
from billing.rules.period import midnight
from clusters import absent_records
from portal.core.tenants.models import Tenant
from portal.sql_files import Statements

sql = Statements(__file__, "usage_series.sql")

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MOST_ROWS = 20_000  # of one answer, each a bucket, a group and a price


class Grouping(StrEnum):
    PROJECT = "project"
    USER = "user"
    ACCOUNT = "account"
    CLUSTER = "cluster"
    GPU_MODEL = "gpu_model"
    QUEUE = "queue"
    QOS = "qos"
    STATE = "state"
    METER = "meter"
    DIMENSIONS = "dimensions"


IN_TOTALS = frozenset({Grouping.PROJECT, Grouping.GPU_MODEL, Grouping.METER, Grouping.DIMENSIONS})
"""What the totals of a day are kept by, apart from the price."""


class Interval(StrEnum):
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class TooManyRowsError(Exception):
    """The answer would have more than MOST_ROWS rows."""


class DetachedError(Exception):
    """Jobs of these hours are in a month that was detached: days are known, hours are not."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """How many units of a declared meter were charged: exact."""

    meter: str
    units: Fraction
    unit: str  # `million tokens`


@dataclass(frozen=True, slots=True)
class Used:
    """`cost` is exact, before the rounding of invoice lines, one amount a currency; empty where nothing is charged."""

    gpu_seconds: Fraction
    cost: list[Money]
    by_total: bool  # the cost is at the first unit's price; tiers or an allowance decide in the end
    quantities: list[Quantity]


@dataclass(frozen=True, slots=True)
class Group:
    """What of a bucket has these values."""

    values: Mapping[Grouping, str]
    used: Used


@dataclass(frozen=True, slots=True)
class Bucket:
    """[first, end): days of the tenant's zone, or instants of its hours; a month that is cut has the days within it."""

    first: date | datetime
    end: date | datetime
    whole: Used
    groups: list[Group]  # those with use, by their values


@dataclass(slots=True)
class Sums:
    """What rows of usage add up to."""

    gpu_seconds: Fraction = Fraction(0)
    amounts: list[Money] = field(default_factory=list)
    by_total: bool = False
    units: dict[tuple[str, str], Fraction] = field(default_factory=dict)  # by declared meter and its unit

    def add(self, other: Sums) -> None:
        self.gpu_seconds += other.gpu_seconds
        self.amounts += other.amounts
        self.by_total |= other.by_total
        for key, units in other.units.items():
            self.count(key, units)

    def add_row(self, resource: str, seconds: Fraction, price: Sequence[Any]) -> None:
        """`price`: the columns of the view billing_pricetag behind its id, all null where nothing is charged."""
        if resource == Resource.GPU:
            self.gpu_seconds += seconds
        if price[0] is None:
            return
        price_tag = tag(*price)
        self.amounts.append(cost(price_tag, seconds))
        self.by_total |= price_tag.by_total
        if isinstance(price_tag.meter, CustomMeter):
            self.count((resource, price_tag.meter.unit), seconds / SECONDS_PER_HOUR)

    def count(self, key: tuple[str, str], units: Fraction) -> None:
        self.units[key] = self.units.get(key, Fraction(0)) + units

    def used(self) -> Used:
        quantities = [Quantity(meter, units, unit) for (meter, unit), units in sorted(self.units.items())]
        return Used(self.gpu_seconds, per_currency(self.amounts), self.by_total, quantities)


def usage_series(
    tenant: Tenant,
    *,
    first: date,
    end: date,
    interval: Interval,
    grouping: Sequence[Grouping] = (),
    project: int | None = None,
    filters: Mapping[Grouping, Sequence[str]] | None = None,
) -> list[Bucket]:
    """Each bucket of [first, end), also those without use. One query. Raises TooManyRowsError, and DetachedError.

    `project`: of that one alone; `filters` may name projects, users, accounts, clusters, GPU models and meters. Hours
    are cut from the rated rows themselves, which takes as long as there are jobs: ask for few days.
    """
    chosen = filters or {}
    values = {
        "tenant": tenant.pk,
        "first_day": first,
        "end": end,
        "by_month": interval is Interval.MONTH,
        "of_totals": {*grouping, *(one for one in chosen if chosen[one])} <= IN_TOTALS,
        "grouping": [str(one) for one in grouping],
        "project": project,
        "zone": tenant.timezone,
        "most": MOST_ROWS,
        **{
            f"{one}s": list(chosen.get(one, ())) or None
            for one in (
                Grouping.PROJECT,
                Grouping.USER,
                Grouping.ACCOUNT,
                Grouping.CLUSTER,
                Grouping.GPU_MODEL,
                Grouping.METER,
            )
        },
    }
    if interval is Interval.HOUR:
        seconds = (midnight(day, zone=tenant.zone).timestamp() for day in (first, end))
        absent_records.show(absent_records.list_between(*(int(second) for second in seconds)))
    with connection.cursor() as cursor:
        cursor.execute(sql.HOURS if interval is Interval.HOUR else sql.BUCKETS, values)
        rows = cursor.fetchall()
    if len(rows) > MOST_ROWS:
        raise TooManyRowsError
    if interval is Interval.HOUR:
        rows = _known(rows)
    sums = _sums(rows, grouping)
    spans = _hours(first, end, tenant.zone) if interval is Interval.HOUR else _spans(first, end, interval)
    return [_bucket(since, until, sums[key], grouping) for key, since, until in spans]


def _known(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without what says whether their jobs are there."""
    if any(gone for *_, gone in rows):
        raise DetachedError
    return [row[:-1] for row in rows]


def _sums(
    rows: Iterable[tuple[Any, ...]], grouping: Sequence[Grouping]
) -> Mapping[date | int, Mapping[tuple[str, ...], Sums]]:
    order = list(Grouping)
    sums: dict[date | int, dict[tuple[str, ...], Sums]] = defaultdict(lambda: defaultdict(Sums))
    for bucket, *row in rows:
        group = tuple(row[order.index(one)] for one in grouping)
        resource, share_den, units, *price = row[len(order) :]
        sums[bucket][group].add_row(resource, Fraction(int(units), share_den), price)
    return sums


def _bucket(
    first: date | datetime,
    end: date | datetime,
    sums: Mapping[tuple[str, ...], Sums],
    grouping: Sequence[Grouping],
) -> Bucket:
    whole = Sums()
    for one in sums.values():
        whole.add(one)
    groups = [Group(dict(zip(grouping, key, strict=True)), sums[key].used()) for key in sorted(sums)]
    return Bucket(first, end, whole.used(), groups if grouping else [])


def _spans(first: date, end: date, interval: Interval) -> Iterator[tuple[date, date, date]]:
    """What the statement calls each bucket, and its days [first, end)."""
    while first < end:
        if interval is Interval.DAY:
            key, after = first, first + DAY
        else:
            key = first.replace(day=1)
            after = min((key + timedelta(days=31)).replace(day=1), end)
        yield key, first, after
        first = after


def _hours(first: date, end: date, zone: ZoneInfo) -> Iterator[tuple[int, datetime, datetime]]:
    """As `_spans`: the local hours of each day, from its first instant on."""
    while first < end:
        at, after = midnight(first, zone=zone), midnight(first + DAY, zone=zone)
        since, until = at.astimezone(UTC), after.astimezone(UTC)
        while since < until:
            finish = min(since + HOUR, until)
            yield int(since.timestamp()), since, finish
            since = finish
        first += DAY
