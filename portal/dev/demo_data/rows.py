"""The usage of the three clusters, each made by a process of its own while the one that asked stores what is there.

`python -m portal.dev.demo_data.rows CLUSTER MOMENT` writes it on standard output, in pickled batches.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BufferedReader
from typing import IO, cast

from clusters.connectors.base import BusyHour, Row
from portal.dev.demo_data.generator import atlas, helix
from portal.dev.demo_data.kubernetes import nimbus
from portal.dev.demo_data.months import months_before, suspended_at
from portal.dev.demo_data.telemetry import with_telemetry
from portal.env import ROOT

SEED = 2026
BATCH = 500  # rows
CLUSTERS = ("atlas", "helix", "nimbus")


def make(cluster: str, moment: datetime) -> Iterator[Row | BusyHour]:
    """What is known of it at that moment."""
    months = months_before(moment)
    first, until = int(months[0].timestamp()), int(moment.timestamp())
    grown, began = int(months[-2].timestamp()), int(months[-5].timestamp())
    jobs: Iterator[Row]
    if cluster == "atlas":
        ends = {"orbit-sim": int(suspended_at(months).timestamp())}
        jobs = atlas(seed=SEED, since=first, until=until, grown=grown, ends=ends)
    elif cluster == "helix":
        jobs = helix(seed=SEED, since=first, until=until, grown=grown)
    else:
        jobs = nimbus(seed=SEED, since=began, until=until)
    return with_telemetry(jobs, since=grown)


@contextmanager
def made_apart(cluster: str, moment: datetime) -> Iterator[Iterator[Row | BusyHour]]:
    """The same rows, from a process that begins with the block and does not outlive it.

    Raises CalledProcessError behind the last row of one that ended badly, and EOFError or UnpicklingError within one.
    """
    command = [sys.executable, "-m", "portal.dev.demo_data.rows", cluster, str(int(moment.timestamp()))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            yield _read(process)
        finally:
            process.kill()


def _read(process: subprocess.Popen[bytes]) -> Iterator[Row | BusyHour]:
    output = cast("BufferedReader", process.stdout)
    while output.peek(1):
        yield from pickle.load(output)  # noqa: S301 - our own child's
    if code := process.wait():
        raise subprocess.CalledProcessError(code, process.args)


def _write(output: IO[bytes], cluster: str, moment: datetime) -> None:
    batch: list[Row | BusyHour] = []
    for row in make(cluster, moment):
        batch.append(row)
        if len(batch) == BATCH:
            pickle.dump(batch, output, pickle.HIGHEST_PROTOCOL)
            batch = []
    pickle.dump(batch, output, pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    _write(sys.stdout.buffer, sys.argv[1], datetime.fromtimestamp(int(sys.argv[2]), UTC))
