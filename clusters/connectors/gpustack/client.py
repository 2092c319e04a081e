"""GPUStack's usage API: breakdowns by POST, whole or not at all, with the key of an administrator.

Routes and fields are those of GPUStack 2.3.0 (`routes/usage.py`, `routes/resource_usage.py`), as a server of it answers
whose usage was written into its tables. Not yet seen from a live source with GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from clusters.connectors.base import Connected, ConnectorError, Secret
from clusters.connectors.clocks import Clocks
from clusters.connectors.http import Endpoint, Http

TIMEOUT = 60  # seconds for one answer
LARGEST = 64 * 2**20  # bytes of one answer; by default GPUStack lists at most 50,000 rows
GPU_INSTANCES = "/v2/usage/gpu-instances/breakdown"
STORAGE = "/v2/usage/storage/breakdown"
TOKENS = "/v2/usage/breakdown"

Item = Mapping[str, Any]


class GpuStackClient(Connected):
    """Every failure is a `ConnectorError`. `clocks` holds both clocks after the first answer that told its time."""

    def __init__(self, endpoint: Endpoint, key: Secret, *, clock: Callable[[], int]) -> None:
        self.http = Http(endpoint, largest=LARGEST)
        self.clocks: Clocks | None = None
        self._headers = {"Accept": Secret("application/json")}
        if key:
            self._headers["Authorization"] = Secret(f"Bearer {key.reveal()}")
        self._clock = clock

    def refuse_part(self, path: str, day: date) -> None:
        """Raise where the key does not see everybody's usage: asked for all, GPUStack then lists its own silently."""
        self._items(path, day, ["organization"])

    def items(self, path: str, day: date, *group_by: str) -> list[Item]:
        """All rows of one day of GPUStack's calendar, numbers exact; by hours where GPUStack keeps them."""
        return self._items(path, day, ["date", *group_by])

    def close(self) -> None:
        self.http.close()

    def _items(self, path: str, day: date, group_by: list[str]) -> list[Item]:
        question: dict[str, Any] = {
            "scope": "all",
            "start_date": day.isoformat(),
            "end_date": day.isoformat(),
            "group_by": group_by,
            "granularity": "day" if path == TOKENS else "hour",
            "page": -1,  # rows of equal use have no order, so that pages could repeat one and leave out another
        }
        before = self._clock()
        answer = self.http.call("POST", path, json=question, headers=self._headers)
        if answer.date is not None and self.clocks is None:
            self.clocks = Clocks(min(max(answer.date, before), self._clock()), answer.date)
        address = self.http.address
        if answer.status == 401:
            raise ConnectorError("gpustack-key", retry=False, address=address)
        if answer.status == 403:
            raise ConnectorError("gpustack-not-admin", retry=False)
        if answer.status == 400:
            raise ConnectorError("gpustack-too-many", retry=True, address=address, day=day.isoformat())
        if answer.status != 200:
            retry = answer.status >= 500 or answer.status == 429
            raise ConnectorError(
                "gpustack-answer", retry=retry, address=address, path=path, status=answer.status
            )
        return self._listed(path, answer.body)

    def _listed(self, path: str, body: bytes) -> list[Item]:
        try:
            table = json.loads(body, parse_float=Decimal, parse_int=_whole)
            items, total = table["items"], table["pagination"]["total"]
        except (ValueError, KeyError, TypeError, RecursionError, InvalidOperation):
            items, total = None, None
        if not isinstance(items, list) or not isinstance(total, int):
            raise ConnectorError("gpustack-shape", retry=True, address=self.http.address, path=path)
        if len(items) != total:
            raise ConnectorError(
                "gpustack-part",
                retry=True,
                address=self.http.address,
                path=path,
                count=len(items),
                total=str(total)[:20],
            )
        return items


def _whole(text: str) -> int | Decimal:
    """Python reads no integer of more than 4,300 digits."""
    return int(text) if len(text) <= 20 else Decimal(text)
