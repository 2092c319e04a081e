"""The API as it is served: slow clients behind the proxy, keys in several processes. Cases 20, 26 of the API."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.api.door import a_key
from tests.integration.proxy import NGINX, SKIP_REASON, Proxy
from tests.integration.web_process import WebProcess
from tests.web.house import House, a_house

pytestmark = pytest.mark.usefixtures("transactional_db")

SILENT, SLOW = 200, 20  # connections
ROUNDS, ASKED = 4, 30


@pytest.fixture
def house(transactional_db: None) -> House:
    return a_house()


def ask(port: int, secret: str, method: str = "GET", path: str = "/me") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, f"/api/v1{path}", headers={"Authorization": f"Bearer {secret}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@contextmanager
def slow_clients(port: int, secret: str) -> Iterator[None]:
    """Some send nothing; some a header by the byte, some a body that never ends."""
    head = f"POST /api/v1/quotes HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n"
    body = head + "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    done = Event()
    with ExitStack() as stack:

        def connected(first: str) -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            client.sendall(first.encode())
            return client

        for _ in range(SILENT):
            connected("")
        clients = [connected(first) for first in (head + "X-Slow: ", body) for _ in range(SLOW)]

        def drip() -> None:
            while not done.wait(0.5):
                for client in clients:
                    client.sendall(b" ")

        dripping = Thread(target=drip)
        dripping.start()
        try:
            yield
        finally:
            done.set()
            dripping.join()


def p95(port: int, secret: str) -> float:
    """Of requests of somebody else, in seconds."""
    spans = []
    for _ in range(ASKED):
        begun = time.perf_counter()
        assert ask(port, secret) == 200
        spans.append(time.perf_counter() - begun)
    return sorted(spans)[int(ASKED * 0.95)]


@pytest.mark.skipif(not NGINX.exists(), reason=SKIP_REASON)
def test_api_026_slow_clients_behind_the_proxy_delay_nobody(
    house: House, database_url: str, tmp_path: Path
) -> None:
    secret, other = (a_key(house.ann, house.vision).secret for _ in range(2))
    with WebProcess(database_url, tmp_path) as web, Proxy(web.port, tmp_path) as proxy:
        p95(proxy.port, other)  # whatever is loaded by the first requests
        alone, beside = [], []
        for _ in range(ROUNDS):  # in turn, since other programs run here
            alone.append(p95(proxy.port, other))
            with slow_clients(proxy.port, secret):
                beside.append(p95(proxy.port, other))
        assert min(beside) <= 1.5 * min(alone), (alone, beside)


def test_api_020_a_revoked_key_is_refused_within_a_second_by_all_processes(
    house: House, database_url: str, tmp_path: Path
) -> None:
    homes = [tmp_path / name for name in ("one", "two")]
    for home in homes:
        home.mkdir()
    ann, other = a_key(house.ann, house.vision), a_key(house.ann, house.vision, "usage:read")
    with WebProcess(database_url, homes[0]) as one, WebProcess(database_url, homes[1]) as two:
        ports = [one.port, two.port]
        each = ports * 3
        assert {ask(port, other.secret) for port in each} == {200}  # whatever a process keeps of it
        key = key_named(one.port, ann.secret, other.key.prefix)
        assert ask(one.port, ann.secret, "DELETE", f"/keys/{key}") == 204
        assert {ask(port, other.secret) for port in each} == {401}  # at once, which is within a second
        assert ask(two.port, ann.secret) == 200


def key_named(port: int, secret: str, prefix: str) -> str:
    """The id of the key with this public part, as its owner reads it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/api/v1/keys", headers={"Authorization": f"Bearer {secret}"})
        rows = json.loads(connection.getresponse().read())["data"]
        return next(str(row["id"]) for row in rows if row["prefix"] == prefix)
    finally:
        connection.close()
