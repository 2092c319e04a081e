"""Sites as they are served: gunicorn with deploy/gunicorn.conf.py, asked over HTTP."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from bench import instance, meter
from bench.shipped import compiled
from portal.env import ROOT

START_SECONDS = 60
SHIPPED = (sys.executable, "-m", "bench.shipped")


@dataclass
class Site:
    """A served site and one kept connection to it, signed in by a cookie."""

    process: subprocess.Popen[bytes]
    port: int
    cookie: str
    connection: http.client.HTTPConnection

    def get(self, address: str) -> bytes:
        """The page; AssertionError unless it is one."""
        return self.sent("GET", address, b"", {"Cookie": self.cookie})

    def sent(self, method: str, address: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """What it is answered; AssertionError unless with 200."""
        status, answer = self.answer(method, address, body, headers)
        if status != 200:
            raise AssertionError(f"{address}: {status} {answer[:500]!r}")
        return answer

    def answer(self, method: str, address: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body."""
        try:
            self.connection.request(method, address, body or None, dict(headers))
            answer = self.connection.getresponse()
        except ConnectionError:  # it closes a connection that was idle
            self.connection.close()
            self.connection.request(method, address, body or None, dict(headers))
            answer = self.connection.getresponse()
        return answer.status, answer.read()

    @property
    def workers(self) -> list[int]:
        return meter.children(self.process.pid)


@contextmanager
def site(cookie: str, *, app: str = "portal.wsgi", **environ: str) -> Iterator[Site]:
    """Serve that application until the block ends."""
    port = free_port()
    command = [*SHIPPED, "gunicorn", "--config", "deploy/gunicorn.conf.py", app]
    environment = {**os.environ, **compiled(), "PORT": str(port), "ALLOWED_HOSTS": "127.0.0.1", **environ}
    with (instance.HOME / f"web-{port}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        wait(process, port)
        yield Site(process, port, cookie, http.client.HTTPConnection("127.0.0.1", port, timeout=60))
    finally:
        process.terminate()
        process.wait()


def url_of(database: str) -> str:
    """The address of another database of the bench's server."""
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{database}"))


def run(module: str, *arguments: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Another process of ours, told so."""
    with (instance.HOME / "other.log").open("ab") as log:
        return subprocess.Popen(
            [*SHIPPED, module, *arguments],
            cwd=ROOT,
            env={**os.environ, **compiled(), **environ},
            stdout=log,
            stderr=log,
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"Nothing is served on port {port}: see {instance.HOME}.")
