"""The ear of the stand-in of an API server: HTTP in, JSON out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from tests.fakes.kubernetes import StandIn


@dataclass(frozen=True)
class Call:
    """One request, as the server understands it."""

    method: str
    path: str
    query: dict[str, str]
    kind: str  # content type
    body: Any
    token: str

    def __str__(self) -> str:
        dry = " (dry run)" if self.query.get("dryRun") else ""
        return f"{self.method} {self.path}{dry}"


class KubernetesHttp(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, kube: StandIn) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kube = kube


class _Handler(BaseHTTPRequestHandler):
    server: KubernetesHttp
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for its head to be acknowledged

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else b""
        call = Call(
            method,
            unquote(parts.path),
            {name: values[-1] for name, values in parse_qs(parts.query).items()},
            self.headers.get("Content-Type", ""),
            json.loads(raw) if raw else None,
            (self.headers.get("Authorization") or "").removeprefix("Bearer "),
        )
        answered = self.server.kube.answer(call)
        if answered is None:  # the connection breaks
            self.close_connection = True
            return
        status, body = answered
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass
