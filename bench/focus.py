"""A month of a million charges as Parquet, beside the CSV of the same rows: each in a process that does nothing else.

`python -m bench.focus parquet 1000000` writes them and prints the peaks of its own memory and of its child, in KiB.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from random import Random

import django

from bench.result import Goal, Result, Side, in_turn
from bench.scale import Scale
from billing.reports.focus_columns import COLUMNS, Kind

CHARGES = 1_000_000
MOST = 150 * 1024  # KiB of either process


def charges(count: int) -> Iterator[list[str]]:
    """Of five thousand users in a month; every amount is another one."""
    dice = Random(20_260_301)
    for number in range(count):
        values = {
            Kind.DECIMAL: f"{dice.randrange(10**6)}.{dice.randrange(10**9):09d}",
            Kind.MOMENT: f"2026-03-{1 + number % 28:02d}T{number % 24:02d}:00:{number % 60:02d}Z",
            Kind.COUNT: str(number % 977),
            Kind.FREE: f"user{number % 5003}",
        }
        yield [values.get(kind, name) for name, kind in COLUMNS.items()]


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if "parquet" in names:
        yield parquet(scale, postmaster)


def parquet(scale: Scale, postmaster: int) -> Result:
    """The writer loads pyarrow in a process of its own: neither may be larger than a process that serves."""
    count, peaks = scale.of(CHARGES), list[int]()
    ours = Side(lambda: peaks.append(_written("parquet", count)))
    cost, least = in_turn(postmaster, ours, Side(partial(_written, "csv", count)), rounds=1)
    title = "charges as Parquet, beside their CSV"
    return Result(
        "parquet", title, count, "charges", cost, least, Goal(at_most="3"), memory=(max(peaks), MOST)
    )


def _written(kind: str, count: int) -> int:
    command = [sys.executable, "-m", "bench.focus", kind, str(count)]
    return int(max(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)))


def _main(kind: str, count: int) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    django.setup()
    from billing.reports import focus_files

    for _ in focus_files.AS[kind](charges(count)):
        pass
    of = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    sys.stdout.write(json.dumps([resource.getrusage(whose).ru_maxrss for whose in of]))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
