"""`./run demo`: comes up, stays up, comes back, and goes away without a trace but its data."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from portal.dev.embedded.postgres import Postgres
from portal.dev.embedded.redis import Redis
from portal.env import ROOT
from portal.ops.schema import BEFORE_1
from tests.integration.test_run_manage import environ, run

PATIENCE = 500  # seconds; the first start makes the demonstration data


class Demo:
    """One instance; `start` and `kill` may alternate."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None
        self.output = home / "demo.out"

    def start(self) -> subprocess.Popen[bytes]:
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [ROOT / "run", "demo", "--port", str(self.port)],
                env=environ(self.home), stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        eventually(lambda: b"ClusterTab is at" in self.output.read_bytes(), self.printed)
        return self.process

    def printed(self) -> str:
        return self.output.read_text()

    def logs(self) -> set[str]:
        return {path.stem for path in (self.home / "logs").glob("*.log")}

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def children(self, name: str) -> list[int]:
        """Processes of this instance whose command line names `name`."""
        pids = []
        mark = f"CLUSTERTAB_HOME={self.home}".encode()
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                if name.encode() in command and mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
            except (OSError, ValueError):
                continue
        return pids

    def kill(self) -> None:
        """Everything of it at once, without a chance to tidy up."""
        for pid in [*self.children("-m"), *Postgres(self.home).processes(), *Redis(self.home).processes()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.process is not None:
            self.process.wait()


STEPS = ["database", "schema", "demo data", "web"]  # the environment was there


def steps(output: str) -> list[str]:
    """Lines of a name and its seconds, before the greeting; a terminal's control characters would hide them."""
    before = output.partition("ClusterTab is at")[0].splitlines()
    return [line[:11].rstrip() for line in before if re.fullmatch(r"[a-z ]{11}  \d+\.\d s", line)]


def eventually(so: Callable[[], bool], message: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, message()
        time.sleep(0.1)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    instance = Demo(tmp_path)
    yield instance
    instance.kill()


def test_the_demo_survives_whatever_is_killed_and_stops_when_told(demo: Demo) -> None:
    first = demo.start()
    assert demo.answers()
    assert steps(demo.printed()) == STEPS
    assert demo.logs() == {"setup", "static", "bytecode", "sandbox", "web", "worker", "puller", "scheduler"}
    collected = (demo.home / "logs" / "static.log").stat().st_mtime_ns
    assert (demo.home / "postgres" / "password").read_text() not in demo.printed()

    # A command beside it uses its database and leaves it running.
    assert run(demo.home, "manage", "check")[0] == 0
    assert demo.answers()
    with psycopg.connect(Postgres(demo.home).owner_url()) as connection:
        connection.execute("CREATE TABLE kept (n int)")

    # One of them dies: it is started again.
    (worker,) = [pid for pid in demo.children("worker@localhost") if pid != first.pid]
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: demo.children("worker@localhost") not in ([], [worker]), demo.printed)

    # The one that holds them together dies: the others go too, and a new start takes the same port.
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    eventually(
        lambda: demo.children("gunicorn") == demo.children("portal.celery_command") == [], demo.printed
    )
    demo.start()
    assert steps(demo.printed()) == STEPS
    assert (demo.home / "logs" / "static.log").stat().st_mtime_ns == collected, "nothing was to be collected"

    # Everything dies at once: what was committed is there at the next start.
    demo.kill()
    last = demo.start()
    with psycopg.connect(Postgres(demo.home).owner_url()) as connection:
        connection.execute("SELECT n FROM kept")
    assert demo.answers()

    last.send_signal(signal.SIGINT)
    assert last.wait(timeout=PATIENCE) == 0
    assert demo.children("-m") == Postgres(demo.home).processes() == Redis(demo.home).processes() == []


def test_a_port_in_use_is_one_sentence(demo: Demo) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", demo.port))
        listener.listen()
        code, out, err = run(demo.home, "demo", "--port", str(demo.port))
    assert (code, out) == (2, "")
    assert err == f"Port {demo.port} is in use; choose another with --port.\n"


def test_a_database_from_before_1_0_is_the_demos_own_sentence_and_stays_as_it_is(demo: Demo) -> None:
    with Postgres(demo.home) as server, psycopg.connect(server.owner_url()) as connection:
        connection.execute("CREATE TABLE django_migrations (name text)")
    code, out, err = run(demo.home, "demo", "--port", str(demo.port))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == BEFORE_1
    assert "step" not in err
    code, out, err = run(demo.home, "manage", "show_invoices")
    assert (code, out, err) == (3, "", f"{BEFORE_1}\n")
    with Postgres(demo.home) as server, psycopg.connect(server.owner_url()) as connection:
        assert connection.execute("SELECT * FROM django_migrations").fetchall() == []


def test_a_step_that_fails_is_named_with_its_log_and_leaves_nothing_running(demo: Demo) -> None:
    (demo.home / "logs").mkdir()
    (demo.home / "migrate.lock").mkdir()  # where a file has to be
    code, out, err = run(demo.home, "demo", "--port", str(demo.port))
    assert (code, out) == (2, "")
    database, schema, sentence = err.splitlines()
    assert steps(err) == ["database"]
    assert (database[:8], schema) == ("database", "schema       ")
    assert re.fullmatch(
        r"The step schema failed: IsADirectoryError: .* \(all of it: .*/setup\.log\)", sentence
    )
    assert Postgres(demo.home).processes() == Redis(demo.home).processes() == []
