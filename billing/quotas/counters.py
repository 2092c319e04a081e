"""What is asked of usage for quotas: spans of days, scopes on them, and the exact seconds that match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any, NamedTuple

from django.db import connection

from billing.models import Quota, Resource
from billing.models.quota_terms import SCOPE
from billing.quotas.price_tags import PriceTags
from portal.prepared import prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "figures.sql")

UNSEEN = (
    5400  # seconds behind its cluster's watermark from which a run counts as no longer seen, as on live pages
)
FEW = 20
"""So many spans or scopes the plan that a connection keeps is good for: it is made for an unknown number of them."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


class Edge(NamedTuple):
    """A stretch of seconds of a rolling window that is no whole day."""

    tenant: int
    since: int
    until: int
    scope: Scope


class Wants:
    """Spans and scopes that are asked of the database at once: each pair once."""

    def __init__(self) -> None:
        self.spans: dict[tuple[Span, bool], int] = {}  # whether totals of days tell what is asked of it
        self.pairs: dict[tuple[int, Scope], int] = {}
        self.edges: list[Edge] = []
        self.prices = PriceTags()  # of what was counted

    def add(self, span: Span, scope: Scope) -> int:
        """The number under which its count will be."""
        place = self.spans.setdefault((span, is_of_totals(scope)), len(self.spans))
        return self.pairs.setdefault((place, scope), len(self.pairs))

    def add_days(self, tenant: int, first: date, end_day: date, scope: Scope) -> int:
        """As `add`, for whole days that have ended: without what runs have used since they were rated."""
        return self.add(Span(tenant, first, end_day, EPOCH, EPOCH), scope)

    def add_edge(self, edge: Edge) -> int:
        """The place at which its counts will be."""
        self.edges.append(edge)
        return len(self.edges) - 1

    def count(self, moment: datetime) -> tuple[list[Count], list[dict[int, Count]]]:
        """By number what was used, and by edge and billing period. One query; none where nothing is asked."""
        counts = [Count() for _ in self.pairs]
        edges: list[dict[int, Count]] = [defaultdict(Count) for _ in self.edges]
        if not counts and not edges:
            return counts, edges
        for want, period, *row in rows(sql.COUNTED, self._values(moment)):
            key, (parts, *units), tag = Key(*row[:4]), row[4:8], row[8:]
            self.prices.add(key.price, tag)
            one = counts[want] if want < len(counts) else edges[want - len(counts)][period]
            for sums, more in zip((one.rated, one.grown, one.speed), units, strict=True):
                if more:
                    sums[key] += Fraction(int(more), parts)
        return counts, edges

    def _values(self, moment: datetime) -> dict[str, Any]:
        """Edges stand behind all others."""
        spans, edges = [span for span, _ in self.spans], self.edges
        day = EPOCH.date()
        return {
            "spans": list(range(len(spans) + len(edges))),
            "span_tenants": [*(span.tenant for span in spans), *(edge.tenant for edge in edges)],
            "first_days": [*(span.first for span in spans), *(day for _ in edges)],
            "end_days": [*(span.end_day for span in spans), *(day for _ in edges)],
            "of_totals": [*(of_totals for _, of_totals in self.spans), *(False for _ in edges)],
            "since": [*(int(span.start.timestamp()) for span in spans), *(edge.since for edge in edges)],
            "until": [*(int(span.end.timestamp()) for span in spans), *(edge.until for edge in edges)],
            "by_second": [*(False for _ in spans), *(True for _ in edges)],
            "wants": list(range(len(self.pairs) + len(edges))),
            "want_spans": [*(place for place, _ in self.pairs), *range(len(spans), len(spans) + len(edges))],
            **scope_columns([*(scope for _, scope in self.pairs), *(edge.scope for edge in edges)]),
            "second": int(moment.timestamp()),
            "unseen": UNSEEN,
            "longest": LONGEST_CUT,
        }


def gpu_hours(seconds: Iterable[tuple[Key, Fraction]]) -> Fraction:
    """Of GPUs, whatever became of them."""
    return sum((one for key, one in seconds if key.resource == Resource.GPU), Fraction(0)) / 3600


def scope_columns(scopes: Sequence[Scope]) -> dict[str, list[Any]]:
    names = ("projects", "users", "accounts", "clusters", "queues", "qoses", "gpu_models")
    return {name: [scope[place] for scope in scopes] for place, name in enumerate(names)}


def rows(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """All rows of one query: planned once a connection where it is of FEW, as for one tenant; of many, for these."""
    most = max((len(value) for value in values.values() if isinstance(value, list)), default=0)
    with prepared_cursor(any_values=True) if most <= FEW else connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())
