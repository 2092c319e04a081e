"""A FOCUS dataset as files: CSV and Parquet."""

from __future__ import annotations

import csv
import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import IO, cast

from billing.documents.csv import cell
from billing.reports.focus import Charge, Dataset
from billing.reports.focus_columns import COLUMNS, PLACE, Kind, Status

FORMATS = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
"""Media types by the end of a file's name."""
ROOT = Path(__file__).parents[2]
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
PIECE = 1 << 16  # characters gathered before they are sent on
_disarmed = lru_cache(maxsize=4096)(cell)  # the same few texts stand in most rows
_FREE = [PLACE[name] for name, kind in COLUMNS.items() if kind is Kind.FREE]


class ParquetError(Exception):
    """The program that writes Parquet failed; the message has its last words."""


def as_csv(charges: Iterable[Charge]) -> Iterator[bytes]:
    """RFC 4180 in UTF-8, the columns first, in pieces; free text that a spreadsheet would run is disarmed."""
    piece = StringIO(newline="")
    writer = csv.writer(piece)
    writer.writerow(COLUMNS)
    for charge in charges:
        for place in _FREE:
            if charge[place]:
                charge[place] = _disarmed(charge[place])
        writer.writerow(charge)
        if piece.tell() >= PIECE:
            yield _taken(piece)
    yield _taken(piece)


def as_parquet(charges: Iterable[Charge]) -> Iterator[bytes]:
    """The same rows with the types of their columns, free text as it is. A process of its own writes them first.

    Raises ParquetError, and OSError where the disk is full.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, errors = Path(folder) / "charges.parquet", Path(folder) / "errors"
        with errors.open("wb") as log:
            _write_parquet(charges, path, log.fileno(), errors)
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                yield piece


def _write_parquet(charges: Iterable[Charge], path: Path, log: int, errors: Path) -> None:
    command = [sys.executable, "-m", "billing.reports.parquet_writer", str(path)]
    environ = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    environ |= {"PYTHONUTF8": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdin=subprocess.PIPE, stderr=log) as process:
        try:
            with TextIOWrapper(
                cast("IO[bytes]", process.stdin), "utf-8", errors="replace", newline=""
            ) as rows:
                csv.writer(rows).writerows(charges)
        except BrokenPipeError:
            pass  # its exit code and its last words say why
        except BaseException:
            process.kill()
            raise
        if (code := process.wait()) in DISK_FULL:
            raise OSError(code, os.strerror(code))
        if code != 0:
            raise ParquetError(f"The writer of Parquet ended with {code}: {errors.read_text()[-2000:]}")


AS = {"csv": as_csv, "parquet": as_parquet}
"""How a dataset is written, by the end of a file's name."""


def _taken(piece: StringIO) -> bytes:
    content = piece.getvalue().encode("utf-8", errors="replace")
    piece.seek(0)
    piece.truncate()
    return content


def file_name(dataset: Dataset, *, of: str, extension: str = "csv") -> str:
    """focus-1.2-vision-2026-03.csv; a month that can still change says so."""
    year, month = dataset.month
    state = f"-{dataset.status.value}" if dataset.status is Status.PRELIMINARY else ""
    return f"focus-1.2-{of}-{year}-{month:02d}{state}.{extension}"
