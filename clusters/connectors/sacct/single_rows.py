"""Rows of sacct that come one by one, each with the header of its export: read by all rules of files."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING

from clusters.connectors.base import BadRow, Reading, Row
from clusters.connectors.files import physical_lines
from clusters.connectors.mig import OwnShares
from clusters.connectors.sacct.layout import layout, raw_rows
from clusters.connectors.sacct.rows import RowReader

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

SEPARATOR = "|"


class SingleRows:
    """Reads rows of one cluster. `zone` is what its exports print times in, `shares` the operator's MIG slices."""

    def __init__(self, zone: ZoneInfo, shares: OwnShares = ()) -> None:
        self._zone, self._shares = zone, shares
        self._readers: dict[str, RowReader] = {}

    def read(self, header: str, text: str) -> Row:
        """One row as sacct printed it, with its line break: the file ends within one that has none.

        Raises ConnectorError for a header that lacks a needed column.
        """
        reader = self._reader(header)
        lines = physical_lines(BytesIO(text.encode()))
        rows = list(raw_rows(lines, delimiter=SEPARATOR, width=reader.columns.width))
        if len(rows) != 1:
            return BadRow(code="not-one-row", values={"rows": len(rows)}, raw=text)
        row = reader.read(rows[0])
        if row is None:
            return BadRow(code="job-step", raw=text)
        return replace(row, raw=text) if isinstance(row, BadRow) else row

    def _reader(self, header: str) -> RowReader:
        if header not in self._readers:
            columns = layout(header.rstrip("\r\n").split(SEPARATOR), delimiter=SEPARATOR)
            self._readers[header] = RowReader(columns, self._zone, Reading(), shares=self._shares)
        return self._readers[header]
