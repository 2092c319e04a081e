"""LiteLLM's table `LiteLLM_SpendLogs` as a file: one request a line of JSON, or CSV with a header.

Columns are those of `schema.prisma` of its proxy; docs/how-to/tokens.md is the page. A request is named by its
`request_id` for ever. Its tokens are sums of a declared meter; what LiteLLM itself reckons it to have cost is not read.
Not yet seen from a live source.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from clusters.connectors import sums
from clusters.connectors.accounting.log import plain, prove, whole_number
from clusters.connectors.base import BadRow, ConnectorError, Reading, Rejection, Row, UnreadableError
from clusters.connectors.files import Line, check_same, opened, physical_lines
from clusters.connectors.prometheus.token_options import METER, Direction
from clusters.connectors.sums import MeterUnits
from portal.excerpt import excerpt, quoted

NEEDED = ("request_id", "prompt_tokens", "completion_tokens", "startTime", "endTime", "model")
UNKNOWN = "unknown"
_SECOND = timedelta(seconds=1)

Record = Mapping[str, Any]


class SpendLogs:
    """One file that was found readable. `reading` is filled while `rows()` is consumed."""

    def __init__(self, path: Path, seen: os.stat_result, *, is_csv: bool, meters: MeterUnits) -> None:
        self.reading = Reading()
        self._path, self._seen, self._is_csv, self._meters = path, seen, is_csv, meters

    def rows(self) -> Iterator[Row]:
        """The tokens of every request in the order of the file, or why they cannot be read; requests without any, and
        those that LiteLLM answered from its own cache, are counted.

        Raises `ConnectorError(retry=True)` if the file is no longer the one that was opened.
        """
        reading = self.reading
        reading.proves_until, reading.steps = None, 0
        with opened(self._path) as (stream, file):
            check_same(self._path, file, self._seen)
            lines = physical_lines(stream)
            for number, raw, record in _of_csv(lines) if self._is_csv else _of_json(lines):
                if isinstance(record, BadRow):
                    yield record
                    continue
                try:
                    rows = self._tokens(record, raw)
                except UnreadableError as error:
                    key = _key(record, "") if record.get("request_id") else ""
                    rows = [BadRow(code=error.code, values=error.values, raw=raw, source_key=key)]
                reading.steps += not rows
                for row in rows:
                    yield replace(row, line=number) if isinstance(row, BadRow) else row
            check_same(self._path, file, self._seen)

    def _tokens(self, record: Record, raw: str) -> list[Row]:
        """One row for each direction that has tokens."""
        if not _text(record, "request_id"):
            raise UnreadableError("log-field-missing", field="request_id")
        read, written = (
            whole_number(name, _text(record, name)) for name in ("prompt_tokens", "completion_tokens")
        )
        start, end = _moment(record, "startTime"), _moment(record, "endTime")
        if _text(record, "cache_hit").lower() == "true":
            return []
        cached = min(_cached(record), read)
        by_direction = {Direction.INPUT: read - cached, Direction.CACHED: cached, Direction.OUTPUT: written}
        prove(self.reading, sums.second(end))
        return [
            self._row(
                record, direction, number, (start, max(end, start + _SECOND) if end >= start else end), raw
            )
            for direction, number in by_direction.items()
            if number
        ]

    def _row(
        self, record: Record, direction: Direction, number: int, span: tuple[datetime, datetime], raw: str
    ) -> Row:
        one = sums.Sum(
            meter=METER,
            account=_text(record, "team_id"),
            user=_text(record, "api_key"),
            quantity=number,
            start=span[0],
            end=span[1],
            dimensions={"model": _text(record, "model") or UNKNOWN, "direction": direction.value},
        )
        key = _key(record, direction)
        row = sums.fact_of(one, event_id=_text(record, "request_id"), key=key, raw=raw, meters=self._meters)
        return row.row if isinstance(row, Rejection) else row


def open_export(path: Path, *, meters: MeterUnits) -> SpendLogs:
    """Checks what would refuse the file whole. Raises `ConnectorError(retry=False)` with a sentence."""
    with opened(path) as (stream, file):
        seen = os.fstat(file.fileno())
        first = next((line.text.strip() for line in physical_lines(stream) if line.text.strip()), "")
        if not first:
            raise ConnectorError("file-empty", retry=False, file=path.name)
        is_csv = not first.startswith(("{", "["))
        names = next(csv.reader([first]), []) if is_csv else _object(first)
        if names is None or any(name not in names for name in NEEDED):
            values = {"file": path.name, "line": quoted(first)}
            raise ConnectorError("spend-logs-other-format", retry=False, **values)
        while stream.read(2**20):  # a broken archive is found out here, not in the middle of an import
            pass
    return SpendLogs(path, seen, is_csv=is_csv, meters=meters)


def _of_json(lines: Iterator[Line]) -> Iterator[tuple[int, str, Record | BadRow]]:
    for line in lines:
        if not line.text.strip():
            continue
        record = None if line.fault and line.fault != "unfinished" else _object(line.text)
        if record is None:
            values = {"pointer": "/", "reason": "no JSON object"}
            code = line.fault or "event-field"
            yield line.number, line.text, BadRow(code=code, values=values, raw=line.text, line=line.number)
        else:
            yield line.number, line.text, record


def _of_csv(lines: Iterator[Line]) -> Iterator[tuple[int, str, Record | BadRow]]:
    """A record may go over several lines, where a message of a request does."""
    faults: list[Line] = []

    def whole() -> Iterator[str]:
        for line in lines:
            if line.fault:
                faults.append(line)
            else:
                yield f"{line.text}\n"

    reader = csv.reader(whole(), strict=True)
    names: list[str] = []
    while True:
        try:
            values = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            reason = {"pointer": "/", "reason": excerpt(str(error))}
            yield (
                reader.line_num,
                "",
                BadRow(code="event-field", values=reason, raw=f"line {reader.line_num}"),
            )
            continue
        raw = json.dumps(values, ensure_ascii=False)
        if not names:
            names = values
        elif len(values) != len(names):
            reason = {"pointer": "/", "reason": f"{len(values)} columns, and the header has {len(names)}"}
            yield (
                reader.line_num,
                raw,
                BadRow(code="event-field", values=reason, raw=raw, line=reader.line_num),
            )
        elif values != names:  # files that were put together have it again
            yield reader.line_num, raw, dict(zip(names, values, strict=True))
    for line in faults:
        yield line.number, line.text, BadRow(code=line.fault, raw=line.text, line=line.number)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(record: Record, name: str) -> str:
    value = record.get(name)
    return "" if value is None else plain(str(value).strip())


def _key(record: Record, direction: str) -> str:
    return f"spend/{_text(record, 'request_id')}/{direction}".rstrip("/")


def _moment(record: Record, name: str) -> datetime:
    """Prisma keeps them in UTC, and without saying so."""
    text = _text(record, name)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UnreadableError("log-field", field=name, text=quoted(text)) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _cached(record: Record) -> int:
    """Of the prompt, what the model's server had in its cache; 0 where LiteLLM does not know."""
    value: Any = record.get("metadata")
    value = _object(value) if isinstance(value, str) else value
    for name in ("usage_object", "prompt_tokens_details", "cached_tokens"):
        value = value.get(name) if isinstance(value, dict) else None
    return whole_number("cached_tokens", str(value)) if value is not None else 0
