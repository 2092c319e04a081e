"""What a tenant spent in a range of days, in groups and beside an earlier range: exact, from what each day used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Any

from django.db import connection

from billing.queries.usage_series import DAY, MOST_ROWS, Grouping, Sums, TooManyRowsError, Used
from portal.core.tenants.models import Tenant
from portal.sql_files import Statements

sql = Statements(__file__, "cost_explorer.sql")

GROUPS = 7  # that have a name; all others are one
MOST_CHOICES = 200  # of one filter
FILTERS = (
    *(Grouping.PROJECT, Grouping.USER, Grouping.ACCOUNT, Grouping.CLUSTER, Grouping.GPU_MODEL),
    *(Grouping.QUEUE, Grouping.QOS, Grouping.STATE, Grouping.METER),
)
"""What can be filtered by; it can be grouped by the same."""


class Step(StrEnum):
    """How long a bucket is; weeks begin on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Days:
    """[first, end) in the tenant's zone."""

    first: date
    end: date

    @property
    def last(self) -> date:
        return self.end - DAY

    def buckets(self, step: Step) -> Iterator[Days]:
        """Those of the calendar, the first and the last one cut at the range."""
        first = self.first
        while first < self.end:
            end = min(_next(first, step), self.end)
            yield Days(first, end)
            first = end


def _next(day: date, step: Step) -> date:
    if step is Step.DAY:
        return day + DAY
    if step is Step.WEEK:
        return day + timedelta(days=7 - day.weekday())
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


@dataclass(frozen=True, slots=True)
class CostQuery:
    """What is looked at: two ranges, up to two groupings, and what a filter leaves."""

    later: Days
    earlier: Days
    by: tuple[Grouping, ...] = ()
    filters: Mapping[Grouping, str] | None = None

    def values(self, tenant: Tenant) -> dict[str, Any]:
        """Of the statements."""
        chosen = self.filters or {}
        first, second = (*self.by, "", "")[:2]
        return {
            "tenant": tenant.pk,
            "first_day": self.later.first,
            "end": self.later.end,
            "earlier_first": self.earlier.first,
            "earlier_end": self.earlier.end,
            "by1": str(first),
            "by2": str(second),
            "most": MOST_ROWS,
            **{str(one): chosen.get(one) for one in FILTERS},
        }


@dataclass(frozen=True, slots=True)
class GroupUse:
    """A group, or all those that have no name of their own: `values` is None then."""

    values: tuple[str, ...] | None
    later: Used
    earlier: Used
    cells: list[Used]  # of the later range, by bucket


@dataclass(frozen=True, slots=True)
class Explored:
    """Groups by their cost in the later range, the others last; they add up to the totals."""

    buckets: list[Days]
    groups: list[GroupUse]
    totals: list[Used]  # by bucket
    later: Used
    earlier: Used

    @property
    def currencies(self) -> list[str]:
        return sorted({money.currency for used in (self.later, self.earlier) for money in used.cost})


def explore(tenant: Tenant, query: CostQuery, *, step: Step, groups: int | None = GROUPS) -> Explored:
    """`groups` that cost most have a name; None: all. One query. Raises TooManyRowsError."""
    buckets = list(query.later.buckets(step))
    values = {
        "bucket_firsts": [one.first for one in buckets],
        "bucket_ends": [one.end for one in buckets],
        "groups": groups,
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.EXPLORED, query.values(tenant) | values)
        rows = cursor.fetchall()
    if len(rows) > MOST_ROWS:
        raise TooManyRowsError
    place = {one.first: number for number, one in enumerate(buckets)}
    cells: dict[tuple[str, ...] | None, dict[int | None, Sums]] = defaultdict(lambda: defaultdict(Sums))
    for earlier, bucket, named, key1, key2, resource, share_den, units, *price in rows:
        group = (key1, key2)[: len(query.by)] if named else None
        sums = cells[group][None if earlier else place[bucket]]
        sums.add_row(resource, Fraction(int(units), share_den), price)
    all_groups = [_group(values, by_bucket, len(buckets)) for values, by_bucket in cells.items()]
    totals = [_added(by_bucket[number] for by_bucket in cells.values()) for number in range(len(buckets))]
    return Explored(
        buckets,
        sorted(all_groups, key=_order),
        [one.used() for one in totals],
        _added(totals).used(),
        _added(by_bucket[None] for by_bucket in cells.values()).used(),
    )


def _group(values: tuple[str, ...] | None, by_bucket: Mapping[int | None, Sums], buckets: int) -> GroupUse:
    cells = [by_bucket.get(number, Sums()) for number in range(buckets)]
    return GroupUse(
        values,
        _added(cells).used(),
        by_bucket.get(None, Sums()).used(),
        [one.used() for one in cells],
    )


def _added(all_sums: Any) -> Sums:
    whole = Sums()
    for one in all_sums:
        whole.add(one)
    return whole


def _order(group: GroupUse) -> tuple[Any, ...]:
    cost = sum((money.amount for money in group.later.cost), Fraction(0))
    return group.values is None, -cost, -group.later.gpu_seconds, group.values or ()


def filter_choices(tenant: Tenant) -> Mapping[str, Sequence[str]]:
    """What the filters offer, by grouping. One query over what the tenant's usage was ever described by."""
    with connection.cursor() as cursor:
        everybody = tenant.only_users is None
        cursor.execute(sql.CHOICES, {"tenant": tenant.pk, "everybody": everybody, "most": MOST_CHOICES})
        return dict(cursor.fetchall())
