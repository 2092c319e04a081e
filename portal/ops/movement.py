"""How long to wait for a process on a machine that is busy: as long as something of it still moves.

A deadline says nothing there: what takes two seconds alone takes minutes among thirty others. A process that works
uses processor time or writes to its log, however slowly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 60  # seconds without a movement
INTERVAL = 0.5  # seconds between two readings, which look at all processes of the machine
LEAST_CPU = 0.3  # seconds of processor time; servers that idle use less within PATIENCE
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """What is seen of a piece of work at one moment."""

    cpu: float = 0.0  # seconds, of all its processes
    log: int = 0  # bytes
    answer: str = ""  # what it answers, where it is a server

    def moved_since(self, earlier: Reading) -> bool:
        """A sum below the earlier one moved as well: a process has ended."""
        worked = not 0 <= self.cpu - earlier.cpu < LEAST_CPU
        return worked or self.log != earlier.log or self.answer != earlier.answer


@dataclass
class Movement:
    """Ask `has_ended` again and again: it is true once nothing has moved for `patience` seconds."""

    read: Callable[[], Reading]
    patience: float = PATIENCE
    clock: Callable[[], float] = time.monotonic
    latest: Reading = field(init=False)
    moved_at: float = field(init=False)
    read_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.latest = self.read()
        self.moved_at = self.read_at = self.clock()

    def has_ended(self) -> bool:
        now = self.clock()
        if now - self.read_at < INTERVAL:
            return False
        self.read_at, reading = now, self.read()
        if reading.moved_since(self.latest):
            self.latest, self.moved_at = reading, now
        return now - self.moved_at > self.patience


def cpu_seconds(roots: Iterable[int]) -> float:
    """Of these processes, of all that descend from them, and of those among them that have ended."""
    parents, ticks = _processes()
    family = set(roots) & ticks.keys()
    while more := {pid for pid, parent in parents.items() if parent in family and pid not in family}:
        family |= more
    return sum(ticks[pid] for pid in family) / TICKS


def _processes() -> tuple[dict[int, int], dict[int, int]]:
    """The parent of each process, and the ticks that it and the children it has buried have used."""
    parents, ticks = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(entry.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(int(value) for value in fields[11:15])
    return parents, ticks


def log_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
