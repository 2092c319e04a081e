"""A log of accounting, one record a line: opened, read and told apart from other files, whatever scheduler wrote it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from clusters.connectors.base import BadRow, ConnectorError, Reading, Row, UnreadableError
from clusters.connectors.files import check_same, opened, physical_lines
from portal.excerpt import excerpt, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOKED_AT = 50  # lines, of which one has to be a record of the format
_DIGITS = re.compile(r"\d{1,18}", re.ASCII)
NOTES = {
    "walltime": "{rows} whose measured run time is not End minus Start: End minus Start was billed, since the "
    "resources were held for it.",
    "gpu-models": "{rows} with several models of GPU, counted without a model.",
}


class RecordReader(Protocol):
    """The rules of one format. One reader reads one file, in its order."""

    reading: Reading
    source_key: str  # of the record that is being read; "" where it could not be told

    def read(self, text: str) -> Row | None:
        """What a line says; None where it holds nothing, or nothing yet. Raises `UnreadableError`."""
        ...

    def rest(self) -> Iterator[Row]:
        """What goes on at the end of the file."""
        ...


class LogExport:
    """One log that was found readable. `reading` is filled while `rows()` is consumed."""

    def __init__(
        self, path: Path, seen: os.stat_result, make_reader: Callable[[Reading], RecordReader]
    ) -> None:
        self.reading = Reading()
        self._path, self._seen, self._make_reader = path, seen, make_reader

    def rows(self) -> Iterator[Row]:
        """Every record in the order of the file, as a fact or with the reason why not; the others are counted.

        Memory is bounded by what runs at once. May be called again, and then reads again; `reading` starts anew.
        Raises `ConnectorError(retry=True)` if the file is no longer the one that was opened.
        """
        reading = self.reading
        reading.proves_until, reading.steps = None, 0
        reading.notes.clear()
        reader = self._make_reader(reading)
        with opened(self._path) as (stream, file):
            check_same(self._path, file, self._seen)
            for line in physical_lines(stream):
                if not line.text.strip():
                    continue
                row = _read(reader, line.text) if not line.fault else BadRow(code=line.fault, raw=line.text)
                if isinstance(row, BadRow):
                    yield BadRow(
                        code=row.code,
                        values=row.values,
                        raw=row.raw,
                        line=line.number,
                        source_key=row.source_key,
                    )
                elif row is not None:
                    yield row
            yield from reader.rest()
            check_same(self._path, file, self._seen)


def _read(reader: RecordReader, text: str) -> Row | None:
    reader.source_key = ""
    try:
        return reader.read(text)
    except UnreadableError as unreadable:
        return BadRow(code=unreadable.code, values=unreadable.values, raw=text, source_key=reader.source_key)


def open_log(
    path: Path,
    *,
    scheduler: str,
    is_record: Callable[[str], bool],
    make_reader: Callable[[Reading], RecordReader],
) -> LogExport:
    """Checks what would refuse the file whole. Raises `ConnectorError(retry=False)` with a sentence."""
    with opened(path) as (stream, file):
        seen = os.fstat(file.fileno())
        lines = (line.text for line in physical_lines(stream) if line.text.strip())
        first = [text for text, _ in zip(lines, range(LOOKED_AT), strict=False)]
        if not first:
            raise ConnectorError("file-empty", retry=False, file=path.name)
        if not any(map(is_record, first)):
            raise ConnectorError(
                "log-other-format", retry=False, file=path.name, scheduler=scheduler, line=quoted(first[0])
            )
        while stream.read(2**20):  # a broken archive is found out here, not in the middle of an import
            pass
    return LogExport(path, seen, make_reader)


def whole_number(field: str, text: str | None) -> int:
    """The field's number. Raises `UnreadableError` for what is none, or is not there."""
    if text is None:
        raise UnreadableError("log-field-missing", field=field)
    if not _DIGITS.fullmatch(text):
        raise UnreadableError("log-field", field=field, text=quoted(text))
    return int(text)


def plain(text: str) -> str:
    """Without what no database stores, and JSON can write: half a pair as `\\udc80`, NUL as `\\x00`."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def loose_number(text: str) -> int | None:
    """A number above 0 by which nothing is billed; None for anything else."""
    return int(text) or None if _DIGITS.fullmatch(text) else None


def gpu_count(field: str, text: str) -> int:
    """A number of GPUs, also as `2.00`. Raises `UnreadableError`: what a job with another held, nobody can tell."""
    whole, point, fraction = text.partition(".")
    if _DIGITS.fullmatch(whole) and len(whole) < 10 and (not point or not fraction.strip("0")):
        return int(whole)
    raise UnreadableError("log-gpus", field=excerpt(field), text=quoted(text))


def prove(reading: Reading, moment: int) -> None:
    """The scheduler was still writing at that moment."""
    if moment > (reading.proves_until or 0):
        reading.proves_until = moment


class Notes:
    """Counts what an operator should know of, and writes it as sentences."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def count(self, code: str) -> None:
        self._counts[code] = self._counts.get(code, 0) + 1

    def write(self, reading: Reading) -> None:
        for code, number in sorted(self._counts.items()):
            rows = f"{number} row" if number == 1 else f"{number} rows"
            reading.notes.append(NOTES[code].format(rows=rows))
