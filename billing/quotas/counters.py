"""What is asked of usage for quotas: spans of days, scopes on them, and the exact seconds that match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from django.db import connection

from billing.models import Quota, Resource
from billing.models.quota_terms import SCOPE
from portal.prepared import prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "figures.sql")

UNSEEN = (
    5400  # seconds behind its cluster's watermark from which a run counts as no longer seen, as on live pages
)
FEW = 20
"""So many spans or scopes the plan that a connection keeps is good for: it is made for an unknown number of them."""
LONGEST_CUT = 70 * 86400  # seconds that one rated row can last: it ends with its billing period


class Key(NamedTuple):
    """What seconds of use are told apart by."""

    project: int
    name: str  # of the project
    price: int | None
    resource: str


@dataclass(frozen=True, slots=True)
class Span:
    """Days of a tenant, and the instants that they are."""

    tenant: int
    first: date
    end_day: date
    start: datetime
    end: datetime


Scope = tuple[Any, ...]
"""Project, and what SCOPE names; None: any."""

EVERYTHING: Scope = (None,) * (1 + len(SCOPE))
NOT_IN_TOTALS = [1 + place for place, column in enumerate(SCOPE) if column != "gpu_model"]
"""Of a scope what the totals of days do not know."""


def is_of_totals(scope: Scope) -> bool:
    """Whether totals of days tell its use: they have a row a day and price, however many jobs there are."""
    return all(scope[place] is None for place in NOT_IN_TOTALS)


def scope_of(quota: Quota) -> Scope:
    """What usage has to match for the quota."""
    return quota.project_id, *(getattr(quota, column) or None for column in SCOPE)


@dataclass(slots=True)
class Count:
    """Resource-seconds by key: as rated, and what running jobs have used since; and what these use in a second."""

    rated: dict[Key, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    grown: dict[Key, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    speed: dict[Key, Fraction] = field(default_factory=lambda: defaultdict(Fraction))

    def seconds(self, key: Key) -> Fraction:
        """Both together."""
        return self.rated.get(key, Fraction(0)) + self.grown.get(key, Fraction(0))

    @property
    def keys(self) -> list[Key]:
        return list(dict.fromkeys([*self.rated, *self.grown]))

    @property
    def whole(self) -> Mapping[Key, Fraction]:
        """Both together, by key."""
        return {key: self.seconds(key) for key in self.keys} if self.grown else self.rated


class Wants:
    """Spans and scopes that are asked of the database at once: each pair once."""

    def __init__(self) -> None:
        self.spans: dict[tuple[Span, bool], int] = {}  # whether totals of days tell what is asked of it
        self.pairs: dict[tuple[int, Scope], int] = {}

    def add(self, span: Span, scope: Scope) -> int:
        """The number under which its count will be."""
        place = self.spans.setdefault((span, is_of_totals(scope)), len(self.spans))
        return self.pairs.setdefault((place, scope), len(self.pairs))

    def count(self, moment: datetime) -> list[Count]:
        """By number what was used. Two queries; none where nothing is asked."""
        counts = [Count() for _ in self.pairs]
        if not counts:
            return counts
        spans = [span for span, _ in self.spans]
        values: dict[str, Any] = {
            "spans": list(range(len(spans))),
            "span_tenants": [span.tenant for span in spans],
            "wants": list(self.pairs.values()),
            "want_spans": [place for place, _ in self.pairs],
            **scope_columns([scope for _, scope in self.pairs]),
        }
        days = {
            "first_days": [span.first for span in spans],
            "end_days": [span.end_day for span in spans],
            "of_totals": [of_totals for _, of_totals in self.spans],
        }
        seconds = {
            "since": [int(span.start.timestamp()) for span in spans],
            "until": [int(span.end.timestamp()) for span in spans],
            "second": int(moment.timestamp()),
            "unseen": UNSEEN,
        }
        for want, *columns, share_den, units in rows(sql.USED, values | days):
            counts[want].rated[Key(*columns)] += Fraction(int(units), share_den)
        for want, *columns, parts, units, a_second in rows(sql.GROWN, values | seconds):
            if units:
                counts[want].grown[Key(*columns)] += Fraction(int(units), parts)
            if a_second:
                counts[want].speed[Key(*columns)] += Fraction(int(a_second), parts)
        return counts


class Edge(NamedTuple):
    """A stretch of seconds of a rolling window that is no whole day."""

    tenant: int
    since: int
    until: int
    scope: Scope


def count_edges(edges: Sequence[Edge]) -> list[dict[int, Count]]:
    """By edge and billing period what was used. One query; none where nothing is asked."""
    counts: list[dict[int, Count]] = [defaultdict(Count) for _ in edges]
    if edges:
        values = {
            "wants": list(range(len(edges))),
            "tenants": [edge.tenant for edge in edges],
            "since": [edge.since for edge in edges],
            "until": [edge.until for edge in edges],
            "longest": LONGEST_CUT,
            **scope_columns([edge.scope for edge in edges]),
        }
        for want, period, *columns, share_den, units in rows(sql.EDGES, values):
            counts[want][period].rated[Key(*columns)] += Fraction(int(units), share_den)
    return counts


@dataclass(slots=True)
class Recent:
    """What the last whole days used, of all projects together; and the first day on which the tenant used anything."""

    use: dict[Key, Fraction] = field(default_factory=dict)
    begun: date | None = None


def count_recent(queries: Sequence[tuple[int, Scope, date]], *, back: int) -> list[Recent]:
    """Of the `back` days before each day, for a tenant and a scope. One query; none where nothing is asked."""
    recent = [Recent() for _ in queries]
    if queries:
        values = {
            "wants": list(range(len(queries))),
            "tenants": [tenant for tenant, _, _ in queries],
            "first_days": [day - timedelta(days=back) for _, _, day in queries],
            "end_days": [day for _, _, day in queries],
            "of_totals": [is_of_totals(scope) for _, scope, _ in queries],
            **scope_columns([scope for _, scope, _ in queries]),
        }
        for want, price, resource, share_den, units, first in rows(sql.RECENT, values):
            key, seconds = Key(0, "", price, resource), Fraction(int(units), share_den)
            use, recent[want].begun = recent[want].use, first
            use[key] = use[key] + seconds if key in use else seconds
    return recent


def gpu_hours(seconds: Iterable[tuple[Key, Fraction]]) -> Fraction:
    """Of GPUs, whatever became of them."""
    return sum((one for key, one in seconds if key.resource == Resource.GPU), Fraction(0)) / 3600


def scope_columns(scopes: Sequence[Scope]) -> dict[str, list[Any]]:
    names = ("projects", "users", "accounts", "clusters", "queues", "qoses", "gpu_models")
    return {name: [scope[place] for scope in scopes] for place, name in enumerate(names)}


def rows(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """All rows of one query: planned once a connection where it is of FEW, as for one tenant; of many, by how many."""
    most = max((len(value) for value in values.values() if isinstance(value, list)), default=0)
    with prepared_cursor() if most <= FEW else connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())
