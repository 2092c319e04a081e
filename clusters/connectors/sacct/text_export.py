"""Text exports of Slurm's accounting: `sacct --parsable2`, plain or gzip. docs/reference/sacct.md is their page."""

from __future__ import annotations

import gzip
import os
import zlib
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from clusters.connectors.base import ConnectorError, Reading, Row
from clusters.connectors.mig import OwnShares
from clusters.connectors.sacct.columns import ColumnReader
from clusters.connectors.sacct.layout import (
    COMMAND,
    Joiner,
    Layout,
    blocks,
    is_header,
    layout,
    physical_lines,
)
from clusters.connectors.sacct.rows import RowReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO
    from zoneinfo import ZoneInfo

    from clusters.connectors.sacct.layout import Line

_GZIP = b"\x1f\x8b"
_OTHER_FORMATS = {
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"PK\x03\x04": "a zip archive",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


FREELY_INFLATED = 64 << 20  # bytes
MOST_INFLATED = 200  # times its own size; accounting text is inflated ten to forty times


class SacctExport:
    """One export that was found readable. `reading` is filled while `rows()` is consumed."""

    def __init__(
        self,
        path: Path,
        *,
        zone: ZoneInfo,
        columns: Layout,
        delimiter: str,
        skip: int,
        seen: os.stat_result,
        shares: OwnShares,
    ) -> None:
        self.reading = Reading()
        self._path, self._zone, self._columns, self._delimiter = path, zone, columns, delimiter
        self._skip = skip  # number of the last line before the rows
        self._seen = seen
        self._shares = shares

    def rows(self) -> Iterator[Row]:
        """Every row in the order of the file, as a fact or with the reason why not; steps are counted only.

        Memory is bounded. May be called again, and then reads again; `reading` starts anew. Raises
        `ConnectorError(retry=True)` if the file is no longer the one that was opened.
        """
        reading = self.reading
        reading.proves_until, reading.steps = None, 0
        reading.notes.clear()
        reader = RowReader(self._columns, self._zone, reading, shares=self._shares)
        columns = ColumnReader(reader, self._delimiter)
        joiner = Joiner(self._delimiter, self._columns.width)
        with opened(self._path) as (stream, file):
            check_same(self._path, file, self._seen)
            for block in blocks(stream):
                rows = block.after(self._skip)
                read = None if joiner.lines else columns.read(rows)
                yield from reader.rows(joiner.rows(rows.lines())) if read is None else read
            yield from reader.rows(joiner.give_up())
            reader.finish()
            check_same(self._path, file, self._seen)


def check_same(path: Path, file: BinaryIO, then: os.stat_result) -> None:
    """Raises `ConnectorError(retry=True)` if the file is no longer the one that was opened first."""
    now = os.fstat(file.fileno())
    if (now.st_ino, now.st_size, now.st_mtime_ns) != (then.st_ino, then.st_size, then.st_mtime_ns):
        raise ConnectorError("file-changed", retry=True, file=path.name)


def open_export(
    path: str | Path,
    *,
    zone: ZoneInfo,
    columns: Sequence[str] | None = None,
    delimiter: str = "|",
    shares: OwnShares = (),
) -> SacctExport:
    """Checks all that would refuse the file whole, before any row is given. `zone` is the cluster's.

    `columns` are the names for an export without a header line, `shares` the
    operator's rows of MIG slices. Raises `ConnectorError(retry=False)` with a
    sentence that says what to do.
    """
    path = Path(path)
    if not delimiter or "\n" in delimiter:
        raise ConnectorError("sacct-delimiter", retry=False)
    with opened(path) as (stream, file):
        seen = os.fstat(file.fileno())
        first = next((line for line in physical_lines(stream) if line.text.strip()), None)
        if first is None:
            raise ConnectorError("sacct-empty", retry=False, file=path.name)
        header, skip = _columns_of(first, columns, delimiter)
        while stream.read(2**20):  # a broken archive is found out here, not in the middle of an import
            pass
    return SacctExport(
        path, zone=zone, columns=header, delimiter=delimiter, skip=skip, seen=seen, shares=shares
    )


def _columns_of(first: Line, columns: Sequence[str] | None, delimiter: str) -> tuple[Layout, int]:
    names = first.text.split(delimiter)
    if columns is None:
        return layout(names, delimiter=delimiter), first.number
    own_layout = layout(columns, delimiter=delimiter)
    if not is_header(names):
        return own_layout, 0
    if [name.strip().lower() for name in names] != [name.strip().lower() for name in columns]:
        raise ConnectorError("sacct-other-columns", retry=False)
    return own_layout, first.number


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The uncompressed bytes, and the file that they are from; what fails is a `ConnectorError`."""
    try:
        if not S_ISREG(path.stat().st_mode):  # opening a pipe would wait for a writer
            raise ConnectorError("file-irregular", retry=False, file=path.name)
        with path.open("rb") as file:
            start = file.read(6)
            file.seek(0)
            for magic, what in _OTHER_FORMATS.items():
                if start.startswith(magic):
                    raise ConnectorError(
                        "file-format", retry=False, file=path.name, format=what, command=COMMAND
                    )
            if start.startswith(_GZIP):
                with gzip.GzipFile(fileobj=file, mode="rb") as stream:
                    yield _Inflated(stream, path), file  # type: ignore[misc]  # reads like a BinaryIO
            else:
                yield file, file
    except FileNotFoundError as error:
        raise ConnectorError("file-missing", retry=False, path=path) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConnectorError("file-gzip-broken", retry=False, file=path.name, reason=error) from error
    except OSError as error:
        raise ConnectorError(
            "file-unreadable", retry=False, file=path.name, reason=error.strerror or error
        ) from error


class _Inflated:
    """An archive as it is read; refused where it holds far more than accounting could have been pressed into it."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self._stream, self._path = stream, path
        self._most = max(FREELY_INFLATED, MOST_INFLATED * path.stat().st_size)

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if self._stream.tell() > self._most:
            raise ConnectorError("file-inflates", retry=False, file=self._path.name, times=MOST_INFLATED)
        return data
