"""What OpenTelemetry's collector and Sentry are for us: servers on 127.0.0.1 that read what they are sent, strictly."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    port: int = 0
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    errors: list[dict[str, Any]] = field(default_factory=list)
    raw: bytes = b""
    """All that came, whole."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def dsn(self) -> str:
        return f"http://public@127.0.0.1:{self.port}/7"

    def take(self, path: str, body: bytes) -> None:
        self.raw += body
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                named = {each.key: each.value.string_value for each in resource.resource.attributes}
                self.services.add(named["service.name"])
                for scope in resource.scope_spans:
                    self.spans += scope.spans
            return
        assert path == "/api/7/envelope/", path
        lines = body.split(b"\n")
        assert json.loads(lines[1])["type"] == "event", lines[1]
        self.errors.append(json.loads(lines[2]))

    def named(self, name: str) -> list[Span]:
        return [span for span in list(self.spans) if span.name == name]

    def below(self, parent: Span) -> list[Span]:
        return [span for span in list(self.spans) if span.parent_span_id == parent.span_id]


@contextmanager
def a_collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(
                self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body
            )
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_address[1]
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
