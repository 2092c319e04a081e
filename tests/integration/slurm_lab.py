"""A real Slurm for the tests: `../shared/labs/slurm` started in a directory and on ports of its own.

A keeper process starts the lab and has it run its set of jobs, beside whatever is tested meanwhile, and purges it
when its standard input closes: when the tests are over, or when their process is gone, however it went.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from portal.env import ROOT
from tests.ports import is_free

SCRIPT = ROOT.parent / "shared" / "labs" / "slurm" / "slurm-lab"
SLOTS = 16
FIRST_PORT, PORTS = 21_000, 50  # below the ports that Linux hands out by itself
STEPS = ("install", "start", "jobs")
PORTS_USED = (17, 19, 20, *range(30, 35))
DATABASE_PORT = 49  # counted from a slot's first port
PATIENCE = 120  # seconds until the lab is given up
ENOUGH_MEMORY = 2 << 30  # bytes; the database alone takes some 200 MiB
MEMORY = Path("/dev/shm")

# Does what it is told step by step, tells after each how it went, and cleans up when nobody is left to tell it.
KEEPER = """
import json, select, shutil, subprocess, sys
script, directory, steps = sys.argv[1], sys.argv[2], sys.argv[3:]
def tell(step, code, said):
    try:
        print(json.dumps([step, code, said[-2000:]]), flush=True)
    except OSError:
        pass
for step in steps:
    if select.select([sys.stdin], [], [], 0)[0]:
        break
    done = subprocess.run([script, step, directory], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    tell(step, done.returncode, done.stdout)
    if done.returncode:
        break
sys.stdin.read()
subprocess.run([script, "purge", directory], stdin=subprocess.DEVNULL, capture_output=True)
shutil.rmtree(directory, ignore_errors=True)
"""


class Lab:
    """One lab, which does these steps one after the other as soon as it is made; `wait` waits for them."""

    def __init__(self, *steps: str) -> None:
        self.began = int(
            time.time()
        )  # epoch second before which it has no job, but for those that tests fill in
        self.filled = 0  # of these, how many
        self._lock, first = _claim()
        self.dir = Path(tempfile.mkdtemp(prefix="clustertab-slurm-", dir=_roomy()))
        self.dir.chmod(0o755)  # the users of Slurm enter it
        self._environ = os.environ | {
            "SLURM_LAB_PORT": str(first), "SLURM_LAB_DB_PORT": str(first + DATABASE_PORT),
            "SLURM_CONF": str(self.dir / "etc" / "slurm.conf"), "TZ": "UTC",
        }  # fmt: skip
        self._steps = steps
        self._done = 0
        self.url = f"http://127.0.0.1:{first + 20}"
        self.socket = self.dir / "run" / "slurmrestd.sock"
        self._keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(SCRIPT), str(self.dir), *steps],
            env=self._environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True, pass_fds=(self._lock,),
        )  # fmt: skip

    def wait(self) -> str:
        """Wait for its steps. A sentence where there can be no lab, since its packages cannot be installed."""
        assert self._keeper.stdout is not None
        while self._done < len(self._steps):
            line = self._keeper.stdout.readline()
            assert line, "The lab's keeper is gone."
            step, code, said = json.loads(line)
            if code and step == "install":
                return (
                    "No Slurm here, and its packages cannot be installed: on Debian 12 let apt-get reach the "
                    f"package mirror. ({said.strip()[-200:]})"
                )
            assert code == 0, said
            self._done += 1
        return ""

    def purge(self) -> None:
        """Stop every process of the lab and delete it."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.wait(PATIENCE)
        self._keeper.stdout.close()
        os.close(self._lock)

    def does(self, *command: object, told: str = "") -> str:
        """A command of the lab's script, `lab.does("fill", 2000)`; what it printed."""
        verb, *rest = map(str, command)
        return self._run([str(SCRIPT), verb, str(self.dir), *rest], told)

    def slurm(self, *command: object) -> str:
        """A command of Slurm as root: `lab.slurm("scontrol", "suspend", 7)`; what it printed."""
        return self._run(list(map(str, command)), "")

    def _run(self, command: list[str], told: str) -> str:
        done = subprocess.run(
            command, env=self._environ, input=told, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}{done.stdout}"
        return done.stdout

    @contextmanager
    def doing(self, *command: object) -> Iterator[Callable[[], bool]]:
        """Run a command of the script beside the block, which is told whether it still runs."""
        verb, *rest = map(str, command)
        with subprocess.Popen(
            [str(SCRIPT), verb, str(self.dir), *rest],
            env=self._environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            yield lambda: process.poll() is None
            assert process.wait(PATIENCE) == 0

    def submits(self, user: str, account: str, script: str, *options: object) -> str:
        """Have the user submit a batch job; its id."""
        command = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "sbatch", "--parsable"]
        command += ["-D", str(self.dir / "work"), "-o", "/dev/null", "-A", account, *map(str, options)]
        return self._run(command, f"#!/bin/bash\n{script}\n").strip().partition(";")[0]

    def is_running(self, job: str) -> None:
        until(lambda: "JobState=RUNNING" in self.slurm("scontrol", "-o", "show", "job", job))

    def is_over(self, job: str) -> None:
        """Wait until slurmctld has ended the job, whether or not slurmdbd could be told."""
        until(lambda: "JobState=COMPLETED" in self.slurm("scontrol", "-o", "show", "job", job))

    def knows(self, job: str, state: str) -> None:
        """Wait until slurmdbd has the job in that state: slurmctld tells it every few seconds."""
        until(lambda: state in self.slurm("sacct", "-nXPD", "-j", job, "-o", "State").split())

    def has_ended(self, job: str) -> None:
        """Wait until slurmdbd has the job's end."""
        until(lambda: "Unknown" not in self.slurm("sacct", "-nXPD", "-j", job, "-o", "End"))

    def labels(self) -> dict[str, str]:
        """Job id by label of the latest run of the set."""
        return dict(line.split() for line in (self.dir / "jobs.txt").read_text().splitlines())

    def token(self, user: str = "portal", seconds: int = 86_400) -> str:
        return self.does("token", user, seconds).strip()

    def key(self) -> str:
        """The content of jwt_hs256.key as one enters it."""
        return b64encode((self.dir / "etc" / "jwt_hs256.key").read_bytes()).decode()

    def runs(self, daemon: str) -> bool:
        return self._pid(daemon) is not None

    def stop(self, daemon: str) -> None:
        """Stop `slurmdbd`, `slurmctld`, `mariadb` or `slurmrestd` as an operator does, and wait for it."""
        pid = self._pid(daemon)
        assert pid is not None, f"{daemon} does not run"
        os.kill(pid, signal.SIGTERM)
        until(lambda: self._pid(daemon) is None)

    def start(self) -> None:
        """Start whatever was stopped."""
        self.does("start")

    def _pid(self, daemon: str) -> int | None:
        """As the script's own: a process counts only while it carries this lab's mark."""
        try:
            pid = int((self.dir / "run" / f"{daemon}.pid").read_text())
            marks = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if f"SLURM_LAB_MARK={self.dir}".encode() in marks else None

    @contextmanager
    def configured(self, *, slurmdbd: str) -> Iterator[None]:
        """Run the block with a line more in slurmdbd.conf."""
        local = self.dir / "etc" / "slurmdbd.local"
        local.write_text(f"{slurmdbd}\n")
        try:
            self._restart_slurmdbd()
            yield
        finally:
            local.unlink()
            self._restart_slurmdbd()

    def _restart_slurmdbd(self) -> None:
        self.stop("slurmdbd")
        self.start()


def until(true: Callable[[], Any], *, seconds: float = 60) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"It did not come true in {seconds:.0f} s."
        time.sleep(0.05)


def _roomy() -> Path | None:
    """Shared memory where there is enough of it, since the database is thrown away; else the usual place."""
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free > ENOUGH_MEMORY else None
    except OSError:
        return None


def _claim() -> tuple[int, int]:
    """An open lock, kept by whoever inherits it, and the first of the ports that it stands for."""
    for slot in range(SLOTS):
        path = Path(tempfile.gettempdir()) / f"clustertab-slurm-{slot}.lock"
        lock = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        first = FIRST_PORT + slot * PORTS
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        if all(is_free(first + offset) for offset in (*PORTS_USED, DATABASE_PORT)):
            return lock, first
        os.close(lock)
    raise RuntimeError(f"{SLOTS} labs are at work already.")


def why_not() -> str:
    """One sentence on why there can be no lab here; empty if there can."""
    if not SCRIPT.exists():
        return "The Slurm lab is absent: put it at ../shared/labs/slurm/slurm-lab."
    if os.geteuid():
        return "The Slurm lab starts daemons of several users: run the tests as root."
    return ""


_started: list[Lab] = []


def begin(items: Iterable[pytest.Item]) -> None:
    """Start the lab now, beside the tests that do not need it, if one of these does."""
    if not why_not() and any(
        "slurm_lab" in getattr(item, "fixturenames", ()) for item in items if _runs(item)
    ):
        _started.append(Lab(*STEPS))


def _runs(item: pytest.Item) -> bool:
    return item.get_closest_marker("skip") is None


def end() -> None:
    """Purge it, whether a test came to use it or not."""
    while _started:
        _started.pop().purge()


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[Lab]:
    """The lab, which has run its set of jobs."""
    if reason := why_not():
        pytest.skip(reason)
    if not _started:
        _started.append(Lab(*STEPS))
    if reason := _started[0].wait():
        pytest.skip(reason)
    yield _started[0]
    end()
