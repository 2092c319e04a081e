"""What a tenant used and what it cost over time, in groups: exact, from what each day used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from fractions import Fraction

from django.db import connection

from billing.models import Resource
from billing.queries.costs import cost, per_currency, tag
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from portal.sql_files import Statements

sql = Statements(__file__, "usage_series.sql")

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


class Interval(StrEnum):
    DAY = "day"
    MONTH = "month"


class TooManyRowsError(Exception):
    """The answer would have more than MOST_ROWS rows."""


@dataclass(frozen=True, slots=True)
class Used:
    """`cost` is exact, before the rounding of invoice lines, one amount a currency; empty where nothing is charged."""

    gpu_seconds: Fraction
    cost: list[Money]
    by_total: bool  # the cost is at the first unit's price; tiers or an allowance decide in the end


@dataclass(frozen=True, slots=True)
class Group:
    """What of a bucket has these values."""

    values: Mapping[Grouping, str]
    used: Used


@dataclass(frozen=True, slots=True)
class Bucket:
    """[first, end), days of the tenant's zone; a month that the question cuts has the days within it."""

    first: date
    end: date
    whole: Used
    groups: list[Group]  # those with use, by their values


@dataclass(slots=True)
class _Sums:
    gpu_seconds: Fraction = Fraction(0)
    amounts: list[Money] = field(default_factory=list)
    by_total: bool = False

    def add(self, other: _Sums) -> None:
        self.gpu_seconds += other.gpu_seconds
        self.amounts += other.amounts
        self.by_total |= other.by_total

    def used(self) -> Used:
        return Used(self.gpu_seconds, per_currency(self.amounts), self.by_total)


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
    """Each bucket of [first, end), also those without use. One query. Raises TooManyRowsError.

    `project`: of that one alone; `filters` may name projects, users, accounts, clusters and GPU models.
    """
    chosen = filters or {}
    values = {
        "tenant": tenant.pk,
        "first_day": first,
        "end": end,
        "by_month": interval is Interval.MONTH,
        "grouping": [str(one) for one in grouping],
        "project": project,
        "most": MOST_ROWS,
        **{
            f"{one}s": list(chosen.get(one, ())) or None
            for one in (
                Grouping.PROJECT,
                Grouping.USER,
                Grouping.ACCOUNT,
                Grouping.CLUSTER,
                Grouping.GPU_MODEL,
            )
        },
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.BUCKETS, values)
        rows = cursor.fetchall()
    if len(rows) > MOST_ROWS:
        raise TooManyRowsError
    order = list(Grouping)
    sums: dict[date, dict[tuple[str, ...], _Sums]] = defaultdict(lambda: defaultdict(_Sums))
    for bucket, *row in rows:
        group = tuple(row[order.index(one)] for one in grouping)
        resource, share_den, units, *price = row[len(order) :]
        entry, seconds = sums[bucket][group], Fraction(int(units), share_den)
        if resource == Resource.GPU:
            entry.gpu_seconds += seconds
        if price[0] is not None:
            price_tag = tag(*price)
            entry.amounts.append(cost(price_tag, seconds))
            entry.by_total |= price_tag.by_total
    return [_bucket(since, until, sums[key], grouping) for key, since, until in _spans(first, end, interval)]


def _bucket(
    first: date, end: date, sums: Mapping[tuple[str, ...], _Sums], grouping: Sequence[Grouping]
) -> Bucket:
    whole = _Sums()
    for one in sums.values():
        whole.add(one)
    groups = [Group(dict(zip(grouping, key, strict=True)), sums[key].used()) for key in sorted(sums)]
    return Bucket(first, end, whole.used(), groups if grouping else [])


def _spans(first: date, end: date, interval: Interval) -> Iterator[tuple[date, date, date]]:
    """What the statement calls each bucket, and its days [first, end)."""
    while first < end:
        if interval is Interval.DAY:
            key, after = first, first + timedelta(days=1)
        else:
            key = first.replace(day=1)
            after = min((key + timedelta(days=31)).replace(day=1), end)
        yield key, first, after
        first = after
