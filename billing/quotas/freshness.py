"""What figures need to know of tenants; and up to when the clusters that a quota counts are read, and which is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from billing.models import Quota
from billing.quotas import counters
from billing.quotas.counters import sql

STALE = timedelta(hours=2)
"""So long behind, or three of its intervals, a cluster that is pulled counts as stale, as `stale_clusters` has it."""

Marks = Mapping[str, tuple[datetime | None, int | None]]
"""By cluster up to when it is read, None: never; and the seconds between two pulls, None where it is not pulled."""


@dataclass(frozen=True, slots=True)
class TenantState:
    """What figures need to know of a tenant."""

    begun: date | None  # the first day on which it used anything
    by_statement: bool  # prices of single units do not tell all that it is charged
    marks: dict[str, tuple[datetime | None, int | None]] = field(default_factory=dict)


def load_states(tenants: Iterable[int], moment: datetime) -> dict[int, TenantState]:
    """By tenant. One query."""
    states: dict[int, TenantState] = {}
    values = {"tenants": sorted({*tenants}), "moment": moment}
    for tenant, begun, by_statement, cluster, *mark in counters.rows(sql.TENANTS, values):
        state = states.setdefault(tenant, TenantState(begun, by_statement))
        if cluster is not None:
            state.marks[cluster] = mark[0], mark[1]
    return states


def read_through(quota: Quota, marks: Marks, moment: datetime) -> tuple[datetime | None, datetime | None]:
    """Up to when all clusters of the quota are read, and that of the oldest that is stale."""
    chosen = [mark for name, mark in marks.items() if quota.cluster in ("", name)]
    moments = [through for through, _ in chosen if through is not None]
    stale = [
        through
        for through, every in chosen
        if through is not None and every and through < moment - max(STALE, timedelta(seconds=3 * every))
    ]
    return min(moments) if moments and len(moments) == len(chosen) else None, min(stale, default=None)
