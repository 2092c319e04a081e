"""What a piece of work costs: CPU of this process and of the whole database server, wall time, memory."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
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
    times = os.times()
    return times.user + times.system


def server_cpu(postmaster: int) -> float:
    """CPU seconds of the postmaster, of the processes it has buried, and of those that live."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile: then the postmaster has it
        own, buried = (int(n) for n in fields[11:13]), (int(n) for n in fields[13:15])
        if int(entry.name) == postmaster:
            ticks += sum(own) + sum(buried)
        elif int(fields[1]) == postmaster:
            ticks += sum(own)
    return ticks / TICKS


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))
