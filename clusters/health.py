"""How each cluster's reading goes, for monitoring."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from clusters.models import Cluster


@dataclass(frozen=True, slots=True)
class Vital:
    """One cluster. `failures` is None where it is not pulled: read from files, or its connection is turned off."""

    cluster: str
    complete_through: datetime | None  # None: never read
    failures: int | None  # passes that failed in a row
    last_success_at: datetime | None  # None: no pass has ended well yet


def vitals() -> list[Vital]:
    """All clusters by name. One query."""
    rows = Cluster.objects.order_by("name").values_list(
        "name",
        "complete_through",
        "connection__failures",
        "connection__last_success_at",
        "connection__enabled",
    )
    return [
        Vital(name, through, failures if enabled else None, success)
        for name, through, failures, success, enabled in rows
    ]
