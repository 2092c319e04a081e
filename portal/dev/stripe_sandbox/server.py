"""HTTP: the API below /v1, the pages for people beside it."""

from __future__ import annotations

import socket
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from portal.dev.stripe_sandbox.api import Api
from portal.dev.stripe_sandbox.hosted import Hosted
from portal.dev.stripe_sandbox.requests import Answer, Incoming

LARGEST = 1 << 20  # bytes of a body


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    timeout = 60
    wbufsize = 1 << 16  # one packet for head and body
    disable_nagle_algorithm = True

    def do_GET(self) -> None:  # the names are the base class's
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: what people type into the pages must not reach a log."""

    def _answer(self) -> None:
        try:
            self._understand()
        except Exception:  # noqa: BLE001 - a fault of the sandbox itself has to be seen by the test
            self.server.api.broke(self.command, self.path, traceback.format_exc())
            self._send(Answer(500, b"The sandbox failed.", content_type="text/plain"))

    def _understand(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if length > LARGEST:
            self._send(Answer(413, b"Too large.", content_type="text/plain"))
            self.close_connection = True
            return
        raw = self.rfile.read(length)
        if len(raw) < length:  # whoever asked ended in the middle: nothing of it happens
            self.close_connection = True
            return
        body = raw.decode(errors="replace")
        if not parts.path.startswith("/v1/"):
            self._send(self.server.hosted.answer(self.command, parts.path, parts.query, body))
            return
        headers = {name.lower(): text for name, text in self.headers.items()}
        form = body if self.command == "POST" else parts.query or body
        self._send(self.server.api.answer(Incoming(self.command, parts.path, form, headers)))

    def _send(self, answer: Answer) -> None:
        if answer.cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, text in answer.headers.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(answer.body)
        except (BrokenPipeError, ConnectionResetError):  # whoever asked did not wait
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, port: int, api: Api) -> None:
        self.api = api
        self.hosted = Hosted(api.state, api.keep)
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        if isinstance(request, socket.socket):
            with self._guard:
                self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        if isinstance(request, socket.socket):
            with self._guard:
                self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Ends the connections that clients keep open, too."""
        super().server_close()
        with self._guard:
            for one in self._open:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: whoever asked went away."""
