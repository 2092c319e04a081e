"""A strict stand-in of GPUStack's usage API, made from what GPUStack 2.3.0 publishes (`schemas/usage.py`,
`routes/usage.py`, `routes/resource_usage.py`): it refuses what its schemas refuse, and rounds as it does.

`hours` are rows of `metered_usage`, `days` rows of `model_usages`, as far as the API shows them.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_EVEN, Decimal
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

KEY = "gpustack_0123456789abcdef_0123456789abcdef0123456789abcdef"
RESOURCES = {
    "/v2/usage/gpu-instances/breakdown": (
        ["instance_type", "instance"],
        ("unit_hours", "gpu_hours", "instance_hours"),
    ),
    "/v2/usage/storage/breakdown": (["volume"], ("gb_days", "gb_hours")),
}
TOKENS = "/v2/usage/breakdown"
FIELDS = {"scope", "start_date", "end_date", "group_by", "granularity", "page"}


@dataclass
class GpuStack:
    """`with GpuStack(now) as gpustack: …` serves `gpustack.url`. `asked` has paths and bodies."""

    now: int
    offset: timedelta = timedelta(0)
    administrator: bool = True
    hours: list[dict[str, Any]] = field(default_factory=list)
    days: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    broken: bytes | None = None  # what it answers instead
    status: int = 200
    tells_time: bool = True

    def instance(self, hour: datetime, seconds: int, cards: str = "1", **changes: Any) -> dict[str, Any]:
        """One that ran `seconds` of the hour with a number of cards."""
        hours = Decimal(seconds) / 3600
        row = {
            "kind": "instance",
            "hour": hour,
            "id": 7,
            "key": "train",
            "sku": "sha1:aa",
            "sku_count": float(cards),
            "instance_type_name": "h100-80g",
            "creator_name": "ben",
            "organization_id": 3,
            "organization_name": "vision",
            "instance_hours": hours,
            "unit_hours": hours * Decimal(cards),
            "gpu_hours": hours * Decimal(cards),
            **changes,
        }
        self.hours.append(row)
        return row

    def volume(self, hour: datetime, gib: int, **changes: Any) -> dict[str, Any]:
        row = self.instance(
            hour, 0, **{"kind": "volume", "id": 2, "key": "data", "sku": "volume--pvc--ssd", **changes}
        )
        row |= {"gb_hours": Decimal(gib), "gb_days": Decimal(gib) / 24, "instance_type_name": None}
        return row

    def tokens(self, day: date, *counts: int, **changes: Any) -> dict[str, Any]:
        """Input, of that cached, and output of one key and route."""
        names = ("input_tokens", "input_cached_tokens", "output_tokens")
        row = {
            "day": day,
            "user": {"value": {"user_name": "ben"}, "current": {"user_id": 5}},
            "api_key": {
                "value": {
                    "user_name": "ben",
                    "api_key_name": "notebook",
                    "access_key": "0123456789abcdef",
                    "api_key_is_custom": False,
                },
                "current": {"user_id": 5, "api_key_id": 11},
            },
            "route": {"value": {"route_name": "large"}, "current": {"route_id": 4}},
            "organization": {
                "value": {"organization_name": "vision", "organization_kind": "org"},
                "current": {"organization_id": 3},
            },
            **dict(zip(names, counts, strict=True)),
            **changes,
        }
        self.days.append(row)
        return row

    def __enter__(self) -> Self:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                stand_in.serve(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", "0")))
        status, answer = self._answer(handler.path, dict(handler.headers), json.loads(body))
        if self.broken is not None and status == 200:
            status, answer = self.status, self.broken
        handler.send_response_only(status)
        if self.tells_time:
            handler.send_header("Date", formatdate(self.now, usegmt=True))
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def _answer(self, path: str, headers: dict[str, str], question: dict[str, Any]) -> tuple[int, bytes]:
        self.asked.append((path, question))
        if headers.get("Authorization") != f"Bearer {KEY}":
            return 401, b'{"code":401,"reason":"Unauthorized","message":"Invalid authentication credentials"}'
        if path not in {*RESOURCES, TOKENS}:
            return 404, b'{"detail":"Not Found"}'
        first, last = (date.fromisoformat(question[name]) for name in ("start_date", "end_date"))
        if question.keys() - FIELDS or question["scope"] != "all" or last < first:
            return 422, b'{"detail":"Unprocessable"}'
        if not self.administrator and "organization" in question["group_by"]:
            return (
                403,
                b'{"code":403,"reason":"Forbidden","message":"No permission to group by organization"}',
            )
        items = (
            self._tokens(question, first, last)
            if path == TOKENS
            else self._hours(path, question, first, last)
        )
        pagination = {"page": question["page"], "perPage": 20, "total": len(items), "totalPage": 1}
        return 200, json.dumps({"items": items, "pagination": pagination, "summary": {}}).encode()

    def _hours(self, path: str, question: dict[str, Any], first: date, last: date) -> list[dict[str, Any]]:
        groups, metrics = RESOURCES[path]
        if question["group_by"] == ["organization"]:
            return []
        assert question["group_by"] == ["date", *groups]
        assert question["granularity"] == "hour"
        zone = timezone(self.offset)
        items = []
        for row in self.hours:
            shifted = row["hour"].astimezone(zone)
            if row["kind"] != groups[-1] or not first <= shifted.date() <= last:
                continue
            shown = {
                name: row.get(name)
                for name in ("id", "key", "instance_type_name", "creator_name", "sku", "sku_count")
            }
            shown |= {name: row[name] for name in ("organization_id", "organization_name")}
            shown["date"] = shifted.replace(minute=0).isoformat()
            shown["metrics"] = {
                name: float(row[name].quantize(Decimal("0.01"), ROUND_HALF_EVEN)) for name in metrics
            }
            items.append(shown)
        return items

    def _tokens(self, question: dict[str, Any], first: date, last: date) -> list[dict[str, Any]]:
        assert question["granularity"] == "day"
        assert question["group_by"][0] == "date"
        items = []
        for row in self.days:
            if not first <= row["day"] <= last:
                continue
            item: dict[str, Any] = {"date": {"value": row["day"].isoformat(), "label": "", "deleted": False}}
            for name in question["group_by"][1:]:
                dimension = {"label": "x", "deleted": False}
                item[name] = dimension if row[name] is None else {**dimension, "identity": row[name]}
            items.append(item | {name: value for name, value in row.items() if name.endswith("_tokens")})
        return items
