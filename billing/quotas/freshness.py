"""Up to when the clusters that a quota counts are read, and which is not read any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from billing.models import Quota
from billing.quotas import counters
from billing.quotas.counters import sql

STALE = timedelta(hours=2)
"""So long behind, or three of its intervals, a cluster that is pulled counts as stale, as `stale_clusters` has it."""

Marks = Mapping[str, tuple[datetime | None, int | None]]
"""By cluster up to when it is read, None: never; and the seconds between two pulls, None where it is not pulled."""


def load_marks(quotas: Sequence[Quota], moment: datetime) -> dict[int, dict[str, Any]]:
    """By tenant. One query."""
    marks: dict[int, dict[str, Any]] = {}
    tenants = sorted({quota.tenant_id for quota in quotas})
    for tenant, cluster, *mark in counters.rows(sql.READ_THROUGH, {"tenants": tenants, "moment": moment}):
        marks.setdefault(tenant, {})[cluster] = tuple(mark)
    return marks


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
