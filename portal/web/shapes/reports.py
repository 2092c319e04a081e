"""What GPUs were held for, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from portal.web.badges import Badge
    from portal.web.form_input import Option
    from portal.web.shapes.frame import Tile


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """One colour of a bar, in per cent of its length."""

    part: Literal["effective", "waste", "unknown", "idle", "drained", "down"]
    x: str
    width: str


@dataclass(frozen=True, kw_only=True)
class SplitRow:
    """What one group held; the amounts are empty unless it is charged."""

    name: str
    detail: str  # what else is known of it: "jupyter-ada of ben in notebooks"
    standing: Badge | None  # None where it is charged
    bar: tuple[Stretch, ...]
    width: str  # of the bar: its part of the largest row's, 0..100
    allocated: str
    effective: str
    waste: str
    unknown: str
    cost: str
    wasted: str  # money of the waste
    utilisation: str
    coverage: str
    sources: str  # "its devices", "the whole cluster"
    jobs: str


@dataclass(frozen=True, kw_only=True)
class NodesRow:
    """What nodes of one model had to give, in GPU-hours: total = down + drained + idle + allocated."""

    model: str
    bar: tuple[Stretch, ...]
    total: str
    down: str
    drained: str
    idle: str
    waited: str  # the part of idle in which a job waited for the model; "" for none
    allocated: str


@dataclass(frozen=True, kw_only=True)
class PeriodChoice:
    label: str  # "Last 7 days"
    href: str
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """A report, or the sentence why there is none. Without any cluster `cluster` is empty on an operator's page."""

    cluster: tuple[Option, ...]
    by: tuple[Option, ...]
    first: str  # days as a date field takes them: "2026-11-01"
    last: str
    choices: tuple[PeriodChoice, ...]
    zone: str
    period: str  # "1 Nov 2026 – 21 Nov 2026"
    of: str  # what a row is: "Project"
    error: str = ""
    tiles: tuple[Tile, ...] = ()
    rows: tuple[SplitRow, ...] = ()
    more: str = ""  # "120 more are in the CSV"
    total: SplitRow | None = None
    nodes: tuple[NodesRow, ...] = ()
    nodes_of: str = ""  # the part of the period in which nodes were looked at, "" for all of it
    notes: tuple[str, ...] = ()
    csv: str = ""  # address
    has_unknown: bool = False
    margin: tuple[Tile, ...] = ()  # of a cluster, by what its capacity costs to run
    no_margin: str = ""  # why it cannot be told
