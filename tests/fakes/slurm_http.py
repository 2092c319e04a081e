"""The stand-in's ear: HTTP in, who asks by their token, JSON out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import jwt

if TYPE_CHECKING:
    from tests.fakes.slurmrestd import StandIn

KEY = b"0123456789abcdef0123456789abcdef"


@dataclass
class Answer:
    status: int
    body: Any


class SlurmHttp(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, slurm: StandIn) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.slurm = slurm


class _Handler(BaseHTTPRequestHandler):
    server: SlurmHttp
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for its head to be acknowledged

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        request = f"{method} {parts.path}"
        self.server.slurm.requests.append(request)
        is_dropped = self.server.slurm.loses and method != "GET"
        self.server.slurm.before(request)
        if is_dropped:
            self.close_connection = True
            return
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        token = self.headers.get("X-SLURM-USER-TOKEN")
        if token is None:
            self._say(Answer(401, "Authentication failure"))
            return
        path = parts.path.rstrip("/") if parts.path != "/openapi/v3" else parts.path
        answer = self.server.slurm.answer(method, path, query, self._who(token), body)
        self.server.slurm.after(request)
        self._say(answer)

    def _who(self, token: str) -> str | None:
        options = {"verify_exp": False, "verify_iat": False, "require": ["exp", "sun"]}
        try:
            claims = jwt.decode(token, KEY, algorithms=["HS256"], options=options)  # type: ignore[arg-type]
        except jwt.InvalidTokenError:
            return None
        return None if claims["exp"] <= self.server.slurm.now else str(claims["sun"])

    def _say(self, answer: Answer) -> None:
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        data = text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "text/plain" if isinstance(answer.body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except BrokenPipeError:  # whoever asked has died
            self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Tests read `asked` instead."""
