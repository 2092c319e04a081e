"""A real Slurm for the tests: `../shared/labs/slurm` started in a directory and on ports of its own.

There is one lab of each version in a run, however many processes test: the process that outlives the others has a
keeper start it (`slurm_keeper.py`), and writes down where it is for all.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from portal.env import ROOT
from tests.integration.slurm_keeper import STEPS
from tests.keepers import outliving
from tests.ports import is_free

SCRIPT = ROOT.parent / "shared" / "labs" / "slurm" / "slurm-lab"
SLOTS = 16
FIRST_PORT, PORTS = 21_000, 50  # below the ports that Linux hands out by itself
KEEPER = Path(__file__).with_name("slurm_keeper.py")
PORTS_USED = (17, 19, 20, *range(30, 35))
DATABASE_PORT = 49  # counted from a slot's first port
PATIENCE = 120  # seconds until the lab is given up
ENOUGH_MEMORY = 2 << 30  # bytes; the database alone takes some 200 MiB
MEMORY = Path("/dev/shm")


class Lab:
    """One lab, as the tests of any process of this run use it; `wait` waits until it has run its set of jobs."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.suite: str = plan["suite"]  # of Debian, whose Slurm it is; "" for this machine's own
        self.began: int = plan[
            "began"
        ]  # epoch second before which it has no job, but for those that tests fill in
        self.filled = 0  # of these, how many
        self.dir = Path(plan["dir"])
        self.script: str = plan.get("script", str(SCRIPT))
        self.environ = os.environ | plan["environ"]
        self._progress = Path(plan["progress"])
        self._last = plan["steps"][-1]
        self.url = f"http://127.0.0.1:{plan['first'] + 20}"
        self.socket = self.dir / "run" / "slurmrestd.sock"
        if self.suite:
            self.environ["PATH"] = f"{self.dir / 'bin'}:{self.environ['PATH']}"

    def wait(self) -> str:
        """Wait for its steps. A sentence where there can be no lab, since its packages cannot be installed."""
        until(self._is_over, seconds=PATIENCE * len(STEPS) * len(suites()))
        step, code, output = self._steps()[-1]
        if code and step == "install":
            return _absent(self.suite, output)
        assert code == 0, output
        return ""

    def _is_over(self) -> bool:
        steps = self._steps()
        return bool(steps) and (steps[-1][0] == self._last or steps[-1][1] != 0)

    def _steps(self) -> list[tuple[str, int, str]]:
        try:
            return [json.loads(line) for line in self._progress.read_text().splitlines(keepends=True)]
        except OSError:
            return []

    @cached_property
    def version(self) -> str:
        """`24.11.5`, as its own commands say."""
        return self.slurm("scontrol", "-V").split()[1]

    def does(self, *command: object, stdin: str = "") -> str:
        """A command of the lab's script, `lab.does("fill", 2000)`; what it printed."""
        verb, *rest = map(str, command)
        return self._run([self.script, verb, str(self.dir), *rest], stdin)

    def slurm(self, *command: object) -> str:
        """A command of Slurm as root: `lab.slurm("scontrol", "suspend", 7)`; what it printed."""
        return self._run(list(map(str, command)), "")

    def _run(self, command: list[str], stdin: str) -> str:
        done = subprocess.run(
            command, env=self.environ, input=stdin, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}{done.stdout}"
        return done.stdout

    @contextmanager
    def doing(self, *command: object) -> Iterator[Callable[[], bool]]:
        """Run a command of the script beside the block, which is told whether it still runs."""
        verb, *rest = map(str, command)
        with subprocess.Popen(
            [self.script, verb, str(self.dir), *rest],
            env=self.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            yield lambda: process.poll() is None
            assert process.wait(PATIENCE) == 0

    def submits(self, user: str, account: str, script: str, *options: object) -> str:
        """Have the user submit a batch job; its id."""
        command = ["env", f"SLURM_LAB_AS={user}"]  # which the commands of another suite go by
        if not self.suite:
            command += ["setpriv", "--reuid", user, "--regid", user, "--init-groups"]
        command += ["sbatch", "--parsable", "-D", str(self.dir / "work"), "-o", "/dev/null", "-A", account]
        command += map(str, options)
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

        def ends() -> list[str]:
            return self.slurm("sacct", "-nXPD", "-j", job, "-o", "End").split()

        until(lambda: "Unknown" not in (ends() or ["Unknown"]))

    def has_rested(self, seconds: int) -> None:
        """Wait until no job, of the set or of another test, came or ended in so many seconds."""
        until(lambda: self._latest() < datetime.now(UTC) - timedelta(seconds=seconds), seconds=2 * seconds)

    def _latest(self) -> datetime:
        since = f"{datetime.fromtimestamp(self.began, UTC):%Y-%m-%dT%H:%M:%S}"
        rows = self.slurm("sacct", "-nXPD", "-a", "-S", since, "-o", "Submit,End").splitlines()
        moments = [text for row in rows for text in row.split("|") if text[:1].isdigit()]
        return datetime.fromisoformat(max(moments)).replace(tzinfo=UTC)

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


def _absent(suite: str, output: str) -> str:
    return (
        f"No Slurm of {suite or 'bookworm'} here, and its packages cannot be installed: on Debian 12 let apt-get "
        f"reach the package mirror. ({output.strip()[-200:]})"
    )


def why_not() -> str:
    """One sentence on why there can be no lab here; empty if there can."""
    if not SCRIPT.exists():
        return "The Slurm lab is absent: put it at ../shared/labs/slurm/slurm-lab."
    if os.geteuid():
        return "The Slurm lab starts daemons of several users: run the tests as root."
    return ""


@cache
def suites() -> list[str]:
    """ "" for this machine's own Slurm, and the suites of Debian that the lab's script says it knows."""
    try:
        words = re.search(r"SLURM_LAB_SUITE=([a-z|]+)", SCRIPT.read_text(encoding="utf-8"))
    except OSError:
        words = None
    return ["", *(words[1].split("|") if words else [])]


PLANS = "CLUSTERTAB_TEST_SLURM"  # names the directory in which the run's labs are written down
_keepers: list[tuple[subprocess.Popen[str], list[int]]] = []


def absent_suites(skipped: Iterable[Any]) -> list[str]:
    """The suites that could not be installed, by the reports of what was skipped."""
    reasons = [report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)]
    return sorted({words[1] for reason in reasons if (words := re.search(r"No Slurm of (\S+) here", reason))})


def announce(directory: Path) -> None:
    """Say to all processes of this run where its labs will be written down."""
    os.environ[PLANS] = str(directory)


def begin(suite_names: Iterable[str], steps: Sequence[str] = STEPS) -> None:
    """Start labs of these suites beside the tests that need none: once in a run, by the process that outlives all."""
    if _keepers or why_not() or not (names := [suite for suite in suites() if suite in set(suite_names)]):
        return
    directory = Path(os.environ[PLANS])
    directory.mkdir(parents=True, exist_ok=True)
    locks, plans = [], []
    for suite in names:
        lock, plan = _plan(suite, steps)
        plans.append(plan | {"progress": str(directory / f"{suite}.progress")})
        locks.append(lock)
        _plan_file(suite).write_text(json.dumps(plans[-1]))
    keeper = subprocess.Popen(
        [sys.executable, KEEPER, str(SCRIPT)], stdin=subprocess.PIPE, text=True, start_new_session=True,
        env=outliving(), pass_fds=locks,
    )  # fmt: skip
    assert keeper.stdin is not None
    keeper.stdin.write(json.dumps(plans) + "\n")
    keeper.stdin.flush()
    _keepers.append((keeper, locks))


def _plan(suite: str, steps: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """A lab in a directory and on ports of its own, and the lock of these."""
    lock, first = _claim()
    place = Path(tempfile.mkdtemp(prefix="clustertab-slurm-", dir=_roomy()))
    place.chmod(0o755)  # the users of Slurm enter it
    environ = {
        "SLURM_LAB_PORT": str(first), "SLURM_LAB_DB_PORT": str(first + DATABASE_PORT),
        "SLURM_CONF": str(place / "etc" / "slurm.conf"), "SLURM_LAB_SUITE": suite, "TZ": "UTC",
    }  # fmt: skip
    return lock, {
        "suite": suite,
        "steps": steps,
        "dir": str(place),
        "first": first,
        "began": int(time.time()),
        "environ": environ,
    }


@contextmanager
def of_script(script: Path, suite: str, *, local: str) -> Iterator[Lab]:
    """A lab of another script than everybody's, with these lines more in slurm.conf, without any job."""
    lock, plan = _plan(suite, ("install", "start"))
    lab = Lab(plan | {"script": str(script), "progress": ""})
    try:
        (lab.dir / "etc").mkdir()
        (lab.dir / "etc" / "slurm.local").write_text(local)
        try:
            lab.does("install")
        except AssertionError as error:
            pytest.skip(_absent(suite, str(error)))
        lab.start()
        yield lab
    finally:
        lab.does("purge")
        shutil.rmtree(lab.dir, ignore_errors=True)
        os.close(lock)


def end() -> None:
    """Stop every process of the labs and delete them, whether a test came to use them or not."""
    while _keepers:
        keeper, locks = _keepers.pop()
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(PATIENCE)
        for lock in locks:
            os.close(lock)


@contextmanager
def alone(directory: Path, *steps: str) -> Iterator[Lab]:
    """A lab outside of any test, with these of its steps, written down in that directory."""
    announce(directory)
    begin([""], steps)
    try:
        yield Lab(json.loads(_plan_file("").read_text()))
    finally:
        end()


def _plan_file(suite: str) -> Path:
    return Path(os.environ[PLANS]) / f"{suite}.json"


def _lab(suite: str) -> Lab:
    if reason := why_not():
        pytest.skip(reason)
    if not _plan_file(suite).exists():
        begin([suite])
    lab = Lab(json.loads(_plan_file(suite).read_text()))
    if reason := lab.wait():
        pytest.skip(reason)
    return lab


@pytest.fixture(scope="session")
def slurm_lab() -> Lab:
    """This machine's own Slurm, which has run its set of jobs."""
    return _lab("")


@pytest.fixture(scope="session", params=suites(), ids=lambda suite: suite or "installed")
def every_slurm(request: pytest.FixtureRequest) -> Lab:
    """The same of each version that the lab knows."""
    return _lab(request.param)
