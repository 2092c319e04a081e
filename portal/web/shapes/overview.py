"""A tenant's billing period at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from portal.web.shapes.frame import Fact, Plot


@dataclass(frozen=True, kw_only=True)
class Tile:
    label: str  # "Spend this period"
    value: str  # "$84,366.49"
    note: str  # "vs. $90,021.11 in the same days of October"
    change: str = ""  # "−6.3 %"
    direction: Literal["up", "down", ""] = ""
    href: str = ""  # where the note leads


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What the period will come to. `value` is empty where `why` says that it is too early for one."""

    until: str  # "30 Nov 2026", the period's last day
    value: str = ""
    band: str = ""  # "from $11,204.10 to $13,020.00", "" where too few days tell
    method: str = ""
    why: str = ""
    plot: Plot | None = None
    rows: tuple[
        Fact, ...
    ] = ()  # of the table behind the plot: by day what had accrued, then what is forecast
    parts: tuple[Fact, ...] = ()  # that add up to `value`: own use, and what is paid for others where it is
