"""What runs and what waits, as it stood at the clusters' last passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portal.web.shapes.jobs import JobRow
    from portal.web.shapes.overview import Tile


@dataclass(frozen=True, kw_only=True)
class ReadThrough:
    """How far a cluster has been read."""

    cluster: str
    through: str  # "20 Nov 2026, 08:00", "" where it never was
    age: str  # "2 min"
    late: bool  # for so long that what follows may be another by now


@dataclass(frozen=True, kw_only=True)
class LiveRow:
    """A job that runs or waits. Amounts are "" where they cannot be told; `unit` and `why` stand below them."""

    job: JobRow
    name: str  # "" where it says no more than the id
    cluster: str
    queue: str  # with its QOS: "gpu · preemptible"
    holds: str  # "16 × h100", "8 cores" without GPUs
    shape: str  # what it holds beside that: "128 cores · 512 GiB · 2 nodes"
    since: str
    lasted: str  # how long it ran or waited: "02:11:09"
    seen_until: str  # "" while it waits
    limit: str  # time limit as a duration
    limit_at: str  # when it is reached
    over: bool  # it was reached before now
    per_hour: str
    at_limit: str
    why: str  # why there is no cost per hour
    unseen: bool


@dataclass(frozen=True, kw_only=True)
class LivePage:
    zone: str
    href: str  # of the page as it stands, to ask for again
    moment: str  # when it was put together: "20 Nov 2026, 08:00:59"
    summary: str  # the totals in one sentence, for those who listen
    marks: tuple[ReadThrough, ...]
    unseen: str  # "2 jobs", "" for none
    tiles: tuple[Tile, ...]
    running: tuple[LiveRow, ...]
    more_running: str
    waiting: tuple[LiveRow, ...]
    more_waiting: str
    first: bool  # neither list begins behind a cursor
