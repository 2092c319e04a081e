"""What the operator looks after: usage without an owner, clusters, quarantine; and the list of tenants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portal.web.badges import Badge
    from portal.web.form_input import Option


@dataclass(frozen=True, kw_only=True)
class UnassignedRow:
    """An account that used something while nobody owned it."""

    cluster: str
    account: str
    jobs: str
    gpu_hours: str
    cpu_hours: str
    since: str
    until: str
    commands: tuple[str, ...]  # that give it an owner, one for each span without


@dataclass(frozen=True, kw_only=True)
class UnassignedPage:
    rows: tuple[UnassignedRow, ...]


@dataclass(frozen=True, kw_only=True)
class ClusterRow:
    name: str
    kind: str
    timezone: str
    complete_through: str  # "" before the first import
    lag: Badge  # "2 min", "3 days"
    unseen: str  # "2 hours not seen"; "" for none
    accounts: str
    jobs: str  # new ones of the last day
    pulled: str  # when the last pass ended, or began while it runs; "" before the first
    source: str  # what it read
    outcome: Badge | None
    error: str


@dataclass(frozen=True, kw_only=True)
class ClustersPage:
    rows: tuple[ClusterRow, ...]


@dataclass(frozen=True, kw_only=True)
class QuarantineRow:
    cluster: str
    code: str
    reason: str
    place: str  # "usage.sacct, line 17"
    first: str
    last: str
    raw: str
    resolution: str  # "" while it is open


@dataclass(frozen=True, kw_only=True)
class QuarantinePage:
    cluster: tuple[Option, ...]
    code: tuple[Option, ...]
    state: tuple[Option, ...]
    total: str
    rows: tuple[QuarantineRow, ...]
    older: str
