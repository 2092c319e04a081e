"""Real accounting files and what an independent reading of them says."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

PRICES = {"g12": Fraction("1.10"), "g24": Fraction("2.30")}


def data(name: str) -> Path:
    """A file of real data; the test is skipped where it is absent."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the real cluster data is not here: put it into ../shared/data ({name})")
    return path


def run(command: str, *arguments: object) -> dict[str, Any]:
    """What an operator command answers with --json; an exit code other than 0 fails the test."""
    out = io.StringIO()
    call_command(command, *map(str, arguments), "--json", stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def truth(name: str, dataset: str) -> list[dict[str, str]]:
    with data(f"truth/{name}").open() as file:
        return [row for row in csv.DictReader(file) if row["dataset"] == dataset]


def gpu_seconds_by_month(path: Path) -> dict[tuple[str, str, str], int]:
    """(account, UTC month, GPU type) → GPU-seconds of a UTC sacct file, by the plainest possible reading."""
    seconds: dict[tuple[str, str, str], int] = defaultdict(int)
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file, delimiter="|", quoting=csv.QUOTE_NONE):
            tres = dict(item.split("=") for item in row["AllocTRES"].split(","))
            model = next(name.partition(":")[2] for name in tres if name.startswith("gres/gpu:"))
            start = int(datetime.fromisoformat(row["Start"]).replace(tzinfo=UTC).timestamp())
            for month, duration in _months(start, start + int(row["ElapsedRaw"])):
                seconds[row["Account"], month, model] += duration * int(tres["gres/gpu"])
    return dict(seconds)


def cents(seconds: int, price: Fraction) -> int:
    """GPU-seconds at a price per hour in cents, halves up, by plain fractions."""
    exact = Fraction(seconds, 3600) * price * 100
    return int(exact + Fraction(1, 2))


def _months(start: int, end: int) -> Iterator[tuple[str, int]]:
    while start < end:
        at = datetime.fromtimestamp(start, UTC)
        border = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
        until = min(end, int(border.timestamp()))
        yield f"{at:%Y-%m}", until - start
        start = until
