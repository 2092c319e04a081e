"""A FOCUS dataset as files: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import StringIO

from billing.documents.csv import cell
from billing.reports.focus import Charge, Dataset
from billing.reports.focus_columns import COLUMNS, PLACE, Kind, Status

PIECE = 1 << 16  # characters gathered before they are sent on
_disarmed = lru_cache(maxsize=4096)(cell)  # the same few texts stand in most rows
_FREE = [PLACE[name] for name, kind in COLUMNS.items() if kind is Kind.FREE]


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
