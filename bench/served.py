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
from portal.env import ROOT

START_SECONDS = 60


@dataclass
class Site:
    """A served site and one kept connection to it, signed in by a cookie."""

    process: subprocess.Popen[bytes]
    port: int
    cookie: str
    connection: http.client.HTTPConnection

    def get(self, address: str) -> bytes:
        """The page; AssertionError unless it is one."""
        try:
            answer = self._measured(address)
        except ConnectionError:  # it closes a connection that was idle
            self.connection.close()
            answer = self._measured(address)
        body = answer.read()
        if answer.status != 200:
            raise AssertionError(f"{address}: {answer.status}")
        return body

    def _measured(self, address: str) -> http.client.HTTPResponse:
        self.connection.request("GET", address, headers={"Cookie": self.cookie})
        return self.connection.getresponse()

    @property
    def workers(self) -> list[int]:
        return meter.children(self.process.pid)


@contextmanager
def site(cookie: str, *, app: str = "portal.wsgi", **environ: str) -> Iterator[Site]:
    """Serve that application until the block ends."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--config", "deploy/gunicorn.conf.py", app]
    environment = {**os.environ, "PORT": str(port), "ALLOWED_HOSTS": "127.0.0.1", **environ}
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


def run(*command: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Another process of ours, told so."""
    with (instance.HOME / "other.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env={**os.environ, **environ}, stdout=log, stderr=log
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
