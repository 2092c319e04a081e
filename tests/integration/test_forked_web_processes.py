"""Several web processes of one site: they share what is loaded, and no connection."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

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


def serving(web: WebProcess) -> list[int]:
    """All of its processes, once each has connections of its own: those to the database stay in its pool."""

    def asked() -> bool:
        client = HTTPConnection("127.0.0.1", web.port, timeout=60)
        client.request("GET", "/readyz")
        assert client.getresponse().status == 503  # Redis is not there
        client.close()
        return all(len(sockets(pid)) > len(sockets(web.pid)) for pid in children(web))

    until(asked, seconds=60)
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
            if found := SOCKET.match(str(entry.readlink())):
                inodes.add(found[1])
    return inodes
