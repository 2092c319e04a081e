"""What a piece of work costs: CPU of this process and of the whole database server, wall time, memory."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run. `cpu` holds this process and all database processes, those that have ended included."""

    cpu: float  # seconds
    client: float  # of these, ours
    wall: float  # seconds
    peak: int  # KiB: the most that this process held


def measure(work: Callable[[], object], postmaster: int) -> Cost:
    """Run it once. The clock ticks every 10 ms: what takes less is to be repeated inside `work`."""
    gc.collect()
    gc.freeze()  # what the bench itself holds is no burden on what it measures
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    wall, client, server = time.perf_counter(), own_cpu(), server_cpu(postmaster)
    work()
    client, server = own_cpu() - client, server_cpu(postmaster) - server
    return Cost(client + server, client, time.perf_counter() - wall, _peak())


def middle(costs: list[Cost]) -> Cost:
    """The median of each figure by itself."""
    return Cost(
        median(c.cpu for c in costs),
        median(c.client for c in costs),
        median(c.wall for c in costs),
        int(median(c.peak for c in costs)),
    )


def own_cpu() -> float:
    """Of this process and of the children that it has buried."""
    return sum(os.times()[:4])


def server_cpu(postmaster: int) -> float:
    """CPU seconds of the postmaster, of the processes it has buried, and of those that live."""
    return family_cpu(postmaster)


def family_cpu(parent: int) -> float:
    """CPU seconds of a process, of the children it has buried, and of those that live."""
    while True:
        before = _ticks(parent)
        living = sum(
            sum(int(n) for n in fields[11:13]) for _, fields in _processes() if int(fields[1]) == parent
        )
        if _ticks(parent)[1] == before[1]:  # else one that was buried meanwhile may be in both, or in neither
            return (sum(before) + living) / TICKS


def exact_cpu(pid: int) -> float:
    """CPU seconds of one process with one thread, to the nanosecond: for what takes few of the clock's ticks."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _ticks(pid: int) -> tuple[int, int]:
    """Of the process itself, and of the children that it has buried."""
    fields = [int(n) for n in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]
    return fields[0] + fields[1], fields[2] + fields[3]


def children(parent: int) -> list[int]:
    return [pid for pid, fields in _processes() if int(fields[1]) == parent]


def resident(pid: int | str = "self") -> int:
    """KiB of memory that a process holds now."""
    return _status(pid, "VmRSS:")


def proportional(pid: int) -> int:
    """KiB of memory that a process holds now, of what several hold each one's part (PSS)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")))


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Each process with what stands behind its name in /proc/PID/stat."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            yield int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile: then its parent has it


def _peak() -> int:
    return _status("self", "VmHWM:")


def _status(pid: int | str, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(name)))
