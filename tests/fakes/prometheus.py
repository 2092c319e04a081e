"""A strict stand-in of the query API on 127.0.0.1, for answers that no package here can be brought to give.

It takes what the API documents, POST of a form to a known path, and nothing else; what it answers is the test's.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

FORM = "application/x-www-form-urlencoded"
DEMANDED = {"query": {"query", "time"}, "query_range": {"query", "start", "end", "step"}}


@dataclass(frozen=True)
class Request:
    """One request. `form` has each field's values, `body` is as it came."""

    what: str
    form: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def query(self) -> str:
        return self.form["query"][0]


@dataclass(frozen=True)
class Reply:
    """An answer; `breaks_off`: the connection closes before its last byte."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    breaks_off: bool = False
    waits: float = 0  # seconds


def success(result: Iterable[Any] = (), kind: str = "vector", **more: Any) -> Reply:
    data = {"resultType": kind, "result": list(result)}
    return Reply(body=json.dumps({"status": "success", "data": data, **more}).encode())


def error(status: int, kind: str, message: str) -> Reply:
    return Reply(status, json.dumps({"status": "error", "errorType": kind, "error": message}).encode())


@dataclass
class StandIn:
    """`with StandIn(answer) as prometheus: …` serves `prometheus.url`; `time()` it answers by itself, from `now`.

    `prefix` stands before /api/v1. `asked` is what it was asked, without the time.
    """

    answer: Callable[[Request], Reply]
    now: int = 1_740_700_000
    prefix: str = ""
    time_too: bool = False  # the test answers time() as well
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> Self:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for its head to be acknowledged

            def do_POST(self) -> None:
                stand_in.serve(self)

            def log_message(self, *_: object) -> None:
                pass

        self._over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.prefix}"

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        form = parse_qs(body.decode(), strict_parsing=True)
        what = handler.path.removeprefix(f"{self.prefix}/api/v1/")
        if what not in DEMANDED or headers.get("content-type") != FORM:
            self.say(handler, Reply(404, b"404 page not found\n", "text/plain"))
            return
        request = Request(what, form, headers, body)
        if request.query == "time()" and not self.time_too:
            self.say(handler, success([self.now, str(self.now)], "scalar"))
            return
        self.requests.append(request)
        if missing := DEMANDED[what] - form.keys():
            self.say(handler, error(400, "bad_data", f"missing: {sorted(missing)}"))
            return
        self.say(handler, self.answer(request))

    def say(self, handler: BaseHTTPRequestHandler, response: Reply) -> None:
        self._over.wait(response.waits)
        handler.send_response(response.status)
        handler.send_header("content-type", response.kind)
        handler.send_header("content-length", str(len(response.body) + (1 if response.breaks_off else 0)))
        for name, value in response.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(response.body)
        handler.close_connection = response.breaks_off
