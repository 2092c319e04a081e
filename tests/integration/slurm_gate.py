"""A proxy before slurmrestd, which counts what it is asked and lets things happen between two questions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

USAGE = "/jobs"  # how the path of a question for usage ends, before its parameters
PATIENCE = 120  # seconds


class Gate:
    """`with opened(lab.url) as gate: gate.before(3, lab_stops_something)`"""

    def __init__(self, target: str) -> None:
        self.requests = 0  # questions for usage that came
        self.answered = 0
        self.paths: list[str] = []  # of these questions, with their parameters
        self._target = target
        self._acts: dict[int, Callable[[], object]] = {}
        self._one_at_a_time = threading.Lock()
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for its head to be acknowledged

            def do_GET(self) -> None:
                gate.passes(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def before(self, number: int, act: Callable[[], object]) -> None:
        """Do that when so many questions for usage, from 1 and from now, have come, before the last is passed on."""
        self._acts[self.requests + number] = act

    def passes(self, handler: BaseHTTPRequestHandler) -> None:
        usage = handler.path.partition("?")[0].rstrip("/").endswith(USAGE) and "/slurmdb/" in handler.path
        if usage:
            with self._one_at_a_time:
                self.requests += 1
                self.paths.append(handler.path)
                act = self._acts.pop(self.requests, None)
            if act is not None:
                act()
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in _OWN}
        try:
            with urlopen(Request(self._target + handler.path, headers=headers), timeout=PATIENCE) as answer:
                status, kind, body = answer.status, answer.headers["Content-Type"], answer.read()
        except HTTPError as refused:
            with refused:
                status, kind, body = refused.code, refused.headers["Content-Type"], refused.read()
        except OSError:
            handler.close_connection = True
            return
        self._answer(handler, status, kind, body)
        if usage:
            self.answered += 1

    def _answer(self, handler: BaseHTTPRequestHandler, status: int, kind: str | None, body: bytes) -> None:
        try:
            handler.send_response(status)
            handler.send_header("Content-Type", kind or "text/plain")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:  # whoever asked has gone
            handler.close_connection = True


_OWN = {"host", "connection", "accept-encoding", "content-length"}


@contextmanager
def opened(target: str) -> Iterator[Gate]:
    gate = Gate(target)
    thread = threading.Thread(target=gate.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield gate
    finally:
        gate.server.shutdown()
        thread.join()
        gate.server.server_close()
