"""OpenCost's answer to `/allocation` as a file: what each pod or namespace held in each step of a window.

Fields are those of `Allocation` in its `core/pkg/opencost/allocation.go`. Its page: docs/reference/accounting-logs.md.
OpenCost tells hours and not when they were: what was held in a step is spread over its time from `start` to `end`. GPUs
that are no whole number all along are two records, so that their sum is what was told, to the second. Its costs are not
read. Not yet seen from a live source.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from pathlib import Path
from typing import Any

from clusters.connectors.accounting.log import plain, prove
from clusters.connectors.base import BadRow, ConnectorError, Reading, Row, UnreadableError, UsageFact
from clusters.connectors.files import check_same, opened
from clusters.connectors.sums import second
from portal.excerpt import quoted

LARGEST = 256 << 20  # bytes: it is read as a whole
LONGEST_NAME = 200  # characters of a key; of a longer one its SHA-256
IDLE = "__idle__"
_HOUR = 3600
_MIB = 2**20
_MOST = 10**15  # that a number of hours may be, bytes included

Allocation = Mapping[str, Any]


class OpenCostExport:
    """One file that was found readable. `reading` is filled while `rows()` is consumed."""

    def __init__(self, path: Path, seen: os.stat_result) -> None:
        self.reading = Reading()
        self._path, self._seen = path, seen

    def rows(self) -> Iterator[Row]:
        """Every allocation in the order of the file, or why it cannot be read; idle ones are counted.

        Raises `ConnectorError(retry=True)` if the file is no longer the one that was opened.
        """
        self.reading.proves_until, self.reading.steps = None, 0
        for step in _steps(self._path, self._seen):
            for written, allocation in step.items():
                name = plain(written)
                raw = json.dumps({name: allocation}, default=str, sort_keys=True)
                if name.split("/")[0] == IDLE or name.endswith(f"/{IDLE}"):
                    self.reading.steps += 1
                    continue
                try:
                    yield from self._facts(name, allocation)
                except UnreadableError as error:
                    yield BadRow(
                        code=error.code, values=error.values, raw=raw, source_key=f"opencost/{name}"[:255]
                    )

    def _facts(self, name: str, allocation: object) -> Iterator[UsageFact]:
        if not isinstance(allocation, Mapping):
            raise UnreadableError("log-field-missing", field="properties")
        of = allocation.get("properties")
        of = of if isinstance(of, Mapping) else {}
        start, end = (second(_moment(allocation, field)) for field in ("start", "end"))
        if end <= start:
            raise UnreadableError("log-field", field="end", text=quoted(str(allocation.get("end"))))
        if "gpuHours" not in allocation:  # OpenCost says 0 where there are none
            raise UnreadableError("log-field-missing", field="gpuHours")
        seconds = end - start
        gpu_seconds = _rounded(_hours(allocation, "gpuHours") * _HOUR)
        units, rest = divmod(gpu_seconds, seconds)
        of_name = name if len(name) <= LONGEST_NAME else sha256(name.encode("utf-8", "replace")).hexdigest()
        key = f"opencost/{of_name}/{datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H:%M:%SZ}"
        same: dict[str, Any] = {
            "account": _text(of, "namespace"),
            "job_id": _text(of, "pod") or name,
            "name": _text(of, "controller"),
            "node_list": _text(of, "node"),
            "started": start,
            "state": "ALLOCATED",
        }
        prove(self.reading, end)
        yield UsageFact(
            source_key=key,
            gpus=units,
            cpu_milli=_rounded(_hours(allocation, "cpuCoreHours") * _HOUR * 1000 / seconds),
            memory_mib=_rounded(_hours(allocation, "ramByteHours") * _HOUR / _MIB / seconds),
            ended=end,
            **same,
        )
        if gpu_seconds:  # also of no length, so that it never has to be taken back
            yield UsageFact(source_key=f"{key}/rest", gpus=1, ended=start + rest, **same)


def open_export(path: Path) -> OpenCostExport:
    """Checks what would refuse the file whole. Raises `ConnectorError(retry=False)` with a sentence."""
    with opened(path) as (_, file):
        seen = os.fstat(file.fileno())
    _steps(path, seen)
    return OpenCostExport(path, seen)


def _steps(path: Path, seen: os.stat_result) -> list[Mapping[str, object]]:
    """The sets of the answer, one a step; of one that was saved without its envelope, too."""
    with opened(path) as (stream, file):
        check_same(path, file, seen)
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ConnectorError("opencost-too-large", retry=False, file=path.name, mebibytes=LARGEST >> 20)
    if not content.strip():
        raise ConnectorError("file-empty", retry=False, file=path.name)
    try:
        answer = json.loads(content, parse_float=Decimal)
    except (ValueError, RecursionError, InvalidOperation):
        answer = None
    steps = answer.get("data") if isinstance(answer, dict) else answer
    if not isinstance(steps, list) or not all(isinstance(step, dict) or step is None for step in steps):
        raise ConnectorError("opencost-other-format", retry=False, file=path.name)
    filled = [step for step in steps if step]
    allocations = [one for step in filled for one in step.values()]
    if allocations and not any(isinstance(one, dict) and "cpuCoreHours" in one for one in allocations):
        raise ConnectorError("opencost-other-format", retry=False, file=path.name)
    return filled


def _text(of: Mapping[str, Any], name: str) -> str:
    value = of.get(name)
    return plain(value) if isinstance(value, str) else ""


def _hours(allocation: Allocation, name: str) -> Decimal:
    value = allocation.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 <= value < _MOST * _MIB:
        raise UnreadableError("log-field", field=name, text=quoted(str(value)))
    return Decimal(value)


def _rounded(value: Decimal) -> int:
    """To the nearest whole number, halves up."""
    return int(value + Decimal("0.5"))


def _moment(allocation: Allocation, name: str) -> datetime:
    text = allocation.get(name)
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise UnreadableError("log-field", field=name, text=quoted(str(text))) from None
    if moment.tzinfo is None:
        raise UnreadableError("log-field", field=name, text=quoted(str(text)))
    return moment
