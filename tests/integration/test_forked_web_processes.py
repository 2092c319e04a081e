"""Several web processes of one site: they share what is loaded, and no connection."""

from __future__ import annotations

import os
import re
import signal
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import urlopen

import pytest

from tests.integration.slurm_lab import until
from tests.integration.web_process import WebProcess

SOCKET = re.compile(r"socket:\[(\d+)\]")
PROCESSES = 2


def test_no_connection_is_shared_by_forked_processes_and_one_that_is_killed_is_replaced(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", str(PROCESSES))
    with WebProcess(database_url, tmp_path) as web:
        first = serving(web)
        apart(web, first)
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(set(children(web)) - {first[0]}) == PROCESSES, seconds=60)
        apart(web, serving(web))


def test_one_that_is_killed_while_the_database_is_away_comes_back_with_it_and_the_other_serves(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", str(PROCESSES))
    monkeypatch.setenv("GUNICORN_CMD_ARGS", "--timeout 25")  # so that it waits shorter
    parts = urlsplit(database_url)
    options = dict(parse_qsl(parts.query))
    name = f".s.PGSQL.{parts.port or 5432}"
    with ExitStack() as stack:
        place = stack.enter_context(TemporaryDirectory())  # a socket's path has to be short
        there, door = Path(options["host"]) / name, Path(place) / name  # without it nobody connects anew
        door.symlink_to(there)
        url = parts._replace(query=urlencode(options | {"host": place})).geturl()
        web = stack.enter_context(WebProcess(url, tmp_path))
        killed, other = serving(web)
        door.unlink()
        os.kill(killed, signal.SIGKILL)
        waiting = another(web, {killed, other})
        with urlopen(f"{web.url}/api/v1/openapi.json", timeout=60) as answer:
            assert answer.status == 200
        another(web, {killed, other, waiting})  # in place of the first, which has ended
        assert other in children(web)
        door.symlink_to(there)
        pids = serving(web)
        assert other in pids
        apart(web, pids)


def another(web: WebProcess, earlier: set[int]) -> int:
    """The process that began after those."""
    until(lambda: set(children(web)) - earlier, seconds=60)
    (pid,) = set(children(web)) - earlier
    return pid


def serving(web: WebProcess) -> list[int]:
    """All of its processes, once each has connections of its own: those to the database stay in its pool."""

    def all_connected() -> bool:
        client = HTTPConnection("127.0.0.1", web.port, timeout=60)
        client.request("GET", "/readyz")
        assert client.getresponse().status == 503  # Redis is not there
        client.close()
        pids = children(web)  # the second is forked after the first, which may answer already
        return len(pids) == PROCESSES and all(len(sockets(pid)) > len(sockets(web.pid)) for pid in pids)

    until(all_connected, seconds=60)
    return children(web)


def apart(web: WebProcess, pids: list[int]) -> None:
    """What listens is all that they have in common, and the process that forked them has no more and no threads."""
    listening = sockets(web.pid)
    assert len(listening) == 1
    assert len(pids) == PROCESSES
    assert sockets(pids[0]) & sockets(pids[1]) == listening
    assert len([*Path(f"/proc/{web.pid}/task").iterdir()]) == 1


def children(web: WebProcess) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{web.pid}/task/{web.pid}/children").read_text().split()]


def sockets(pid: int) -> set[str]:
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if match := SOCKET.match(str(entry.readlink())):
                inodes.add(match[1])
    return inodes
