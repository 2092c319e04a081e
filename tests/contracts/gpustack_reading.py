"""Usage of a stand-in of GPUStack, read as a sync reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from clusters.connectors.base import Secret, UsageFact
from clusters.connectors.gpustack.connector import GpuStackConnector
from clusters.connectors.gpustack.options import GpuStackOptions
from clusters.connectors.http import Endpoint
from clusters.connectors.sums import MeterUnit
from tests.fakes.gpustack import KEY, GpuStack

DAY = date(2026, 3, 2)
TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOON = int((TEN + 2 * HOUR).timestamp())
USED = {"gpu": "gpu-hours", "cpu": "unit-hours", "storage": "gib-hours", "tokens": "llm-tokens"}
METERS = {
    "gpu-hours": MeterUnit("gpu-hours", 2, 100, ("type",)),
    "unit-hours": MeterUnit("unit-hours", 2, 100, ()),
    "gib-hours": MeterUnit("gib-hours", 2, 100, ("type",)),
    "llm-tokens": MeterUnit("llm-tokens", 0, 1_000_000, ("model", "direction")),
}


def connected(
    source: GpuStack,
    *,
    key: str = KEY,
    zone: str = "UTC",
    meters: Any = METERS,
    stored: Sequence[UsageFact] = (),
    **options: Any,
) -> GpuStackConnector:
    return GpuStackConnector(
        Endpoint(base_url=source.url),
        key=Secret(key),
        options=GpuStackOptions(**(options or USED)),
        zone=ZoneInfo(zone),
        clock=lambda: source.now,
        meters=meters,
        stored=lambda _, begin, end: [
            one for one in stored if begin <= (one.started or 0) < end and one.quantity
        ],
    )


def read(
    source: GpuStack, *, since: datetime = TEN - 10 * HOUR, until: int = 0, **how: Any
) -> tuple[Any, Any]:
    """Rows, and the reading after them."""
    with connected(source, **how) as connector:
        rows = list(connector.usage(since=int(since.timestamp()), until=until or source.now, open_keys=()))
        return rows, connector.reading


def facts_of(rows: Sequence[Any]) -> dict[str, UsageFact]:
    return {row.source_key: row for row in rows}


def amounts(rows: Sequence[Any]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        assert isinstance(row, UsageFact), row
        counts[row.meter, row.gpu_model] += row.quantity or 0
    return counts
