"""An endpoint of webhooks on 127.0.0.1, over HTTP or HTTPS. It verifies all that it gets by the published package."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

LARGEST = 20 * 1024


@dataclass(frozen=True)
class Arrival:
    """One request that was as it should be."""

    path: str
    id: str
    timestamp: int
    body: dict[str, Any]
    headers: dict[str, str]
    raw: bytes
    at: float  # monotonic seconds


@dataclass
class Reply:
    """What is answered: `pieces` are written one by one, with `pause` seconds before each."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()
    pause: float = 0.0


class Receiver(ThreadingHTTPServer):
    """Stateful and strict: `violations` has each request that no receiver should get."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scheme = "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.secrets: dict[str, list[str]] = {}  # by path: each has to verify
        self.arrivals: list[Arrival] = []
        self.violations: list[str] = []
        self.reply: Callable[[Arrival], Reply] = lambda arrival: Reply()
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.verifying = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def at(self, path: str = "/hook") -> list[Arrival]:
        return [arrival for arrival in self.arrivals if arrival.path == path]

    def types(self, path: str = "/hook") -> list[str]:
        return [arrival.body["type"] for arrival in self.at(path)]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    timeout = 30

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        problem = self._problem(raw, headers)
        if problem:
            self.server.violations.append(f"{self.path}: {problem}")
            self.send_error(400)
            return
        message = json.loads(raw)
        stamp = int(headers["webhook-timestamp"])
        arrival = Arrival(self.path, headers["webhook-id"], stamp, message, headers, raw, time.monotonic())
        self.server.arrivals.append(arrival)
        with suppress(ConnectionError, ssl.SSLError):
            self._answer(self.server.reply(arrival))

    def _answer(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in reply.pieces or (b"",):
            time.sleep(reply.pause)
            self.wfile.write(piece)
            self.wfile.flush()

    def _problem(self, raw: bytes, headers: dict[str, str]) -> str:
        if headers.get("content-type") != "application/json":
            return f"content type {headers.get('content-type')}"
        if len(raw) > LARGEST:
            return f"{len(raw)} bytes"
        if {"authorization", "cookie"} & {*headers}:
            return "credentials"
        for secret in self.server.secrets.get(self.path, []):
            try:
                message = self._verified(Webhook(secret), raw, headers)
            except WebhookVerificationError as error:
                return f"signature: {error}"
            if message["id"] != headers["webhook-id"]:
                return "another id in the body"
        if self.path not in self.server.secrets:
            return "a path of nobody"
        return ""

    def _verified(self, webhook: Webhook, raw: bytes, headers: dict[str, str]) -> Any:
        """By the receiver's clock, which the package itself reads from the machine."""
        now = self.server.now

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return now().astimezone(tz)

        with self.server.verifying, patch("standardwebhooks.webhooks.datetime", Clock):
            return webhook.verify(raw, headers)

    def do_GET(self) -> None:
        self.server.violations.append(f"GET {self.path}")
        self.send_error(405)


@contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Served until the block ends; what it should not get fails the test there."""
    with Receiver(tls) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
    assert server.violations == []


def authority(folder: Path, *names: str) -> tuple[Path, ssl.SSLContext]:
    """A file with an authority's certificate, and a server's context with one for those names that it issued."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def issue(
        name: str,
        issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None,
        *more: tuple[x509.ExtensionType, bool],
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        by, by_key = issuer or (subject, key)
        begins = datetime.now(UTC) - timedelta(days=1)
        builder = x509.CertificateBuilder(
            by, subject, key.public_key(), x509.random_serial_number(), begins, begins + timedelta(days=30)
        )
        for extension, is_critical in more:
            builder = builder.add_extension(extension, is_critical)
        return builder.sign(by_key, hashes.SHA256()), key

    root, root_key = issue(
        "root",
        None,
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (x509.KeyUsage(False, False, False, False, False, True, True, False, False), True),
    )
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    leaf, leaf_key = issue("leaf", (root.subject, root_key), (alternatives, False))
    (folder / "ca.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    (folder / "leaf.pem").write_bytes(
        leaf.public_bytes(serialization.Encoding.PEM)
        + leaf_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem")
    return folder / "ca.pem", context
