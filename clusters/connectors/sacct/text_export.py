"""Text exports of Slurm's accounting: `sacct --parsable2`, plain or gzip. docs/reference/sacct.md is their page."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from clusters.connectors.base import ConnectorError, Reading, Row
from clusters.connectors.files import blocks, check_same, opened, physical_lines
from clusters.connectors.mig import OwnShares
from clusters.connectors.sacct.columns import ColumnReader
from clusters.connectors.sacct.layout import Joiner, Layout, is_header, layout
from clusters.connectors.sacct.rows import RowReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from zoneinfo import ZoneInfo

    from clusters.connectors.files import Line


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
        return chain.from_iterable(self._blocks())

    def _blocks(self) -> Iterator[Iterable[Row]]:
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
                yield reader.rows(joiner.rows(rows.lines())) if read is None else read
            yield reader.rows(joiner.give_up())
            reader.finish()
            check_same(self._path, file, self._seen)


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
