"""A real Prometheus for the tests: `../shared/labs/prom` started in a directory and on a port of its own.

A keeper process starts the lab, and stops and deletes it when its standard input closes: when the tests are over, or
when their process is gone, however it went.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.request import urlopen

import pytest

from portal.env import ROOT
from tests.keepers import outliving
from tests.ports import is_free

SCRIPT = ROOT.parent / "shared" / "labs" / "prom" / "prom-lab"
PROGRAMS = ROOT / "var" / "test" / "prometheus"  # the package's programs, for the next run
ABSENT = "The Prometheus lab is absent: put it at ../shared/labs/prom/prom-lab."
BINARIES = Path("deb") / "usr" / "bin"  # where the lab looks for them
SLOTS = 16
FIRST_PORT = 22_400  # below the ports that Linux hands out by itself
MEMORY = Path("/dev/shm")
ENOUGH_MEMORY = {"push": 1 << 30, "promtool": 3 << 30}  # bytes; promtool reads a text of 900 MB

KEEPER = """
import json, shutil, subprocess, sys
script, directory = sys.argv[1:]
done = subprocess.run([script, "start", directory], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT, text=True, errors="replace")
try:
    print(json.dumps([done.returncode, done.stdout[-2000:]]), flush=True)
except OSError:
    pass
sys.stdin.read()
subprocess.run([script, "stop", directory], stdin=subprocess.DEVNULL, capture_output=True)
shutil.rmtree(directory, ignore_errors=True)
"""


class AbsentError(Exception):
    """There is no Prometheus here, and its package cannot be fetched; the message says what to do."""


class Lab:
    """One lab, started. Raises AbsentError."""

    def __init__(self, loader: str) -> None:
        self._lock, port = _claim()
        self.dir = Path(tempfile.mkdtemp(prefix="clustertab-prom-", dir=_roomy(loader)))
        self.url = f"http://127.0.0.1:{port}"
        if PROGRAMS.exists():
            shutil.copytree(PROGRAMS, self.dir / BINARIES)
        self._keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(SCRIPT), str(self.dir)],
            env=outliving() | {"PROM_LAB_PORT": str(port), "PROM_LAB_LOADER": loader, "TZ": "UTC"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            pass_fds=(self._lock,),
        )  # fmt: skip
        assert self._keeper.stdout is not None
        code, output = json.loads(self._keeper.stdout.readline())
        if code:
            self.purge()
            if "no prometheus package" in output:
                raise AbsentError(
                    "No Prometheus here, and its package cannot be fetched: on Debian 12 let apt-get reach the "
                    "package mirror."
                )
            raise AssertionError(output)
        _keep(self.dir / BINARIES)
        self.newest = self.end  # the epoch second up to which it has samples

    @cached_property
    def truth(self) -> dict[str, Any]:
        """What really was: pods, nodes, outages. Times are epoch seconds."""
        truth: dict[str, Any] = json.loads((self.dir / "truth.json").read_text())
        return truth

    @property
    def base(self) -> int:
        return int(self.truth["base"])

    @property
    def end(self) -> int:
        return int(self.truth["end"])

    def purge(self) -> None:
        """Stop the server and delete its data."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.wait(60)
        self._keeper.stdout.close()
        os.close(self._lock)


def generator() -> Any:
    """The lab's own generator, to push further series with."""
    spec = importlib.util.spec_from_file_location("promgen", SCRIPT.with_name("promgen.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _keep(binaries: Path) -> None:
    """By a rename, so that a run beside us never finds half of it."""
    if PROGRAMS.exists():
        return
    PROGRAMS.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=PROGRAMS.parent)) / "bin"
    shutil.copytree(binaries, part)
    try:
        part.rename(PROGRAMS)
    except OSError:
        pass
    shutil.rmtree(part.parent, ignore_errors=True)


def _roomy(loader: str) -> Path | None:
    """Shared memory where there is enough of it, since the data is thrown away; else the usual place."""
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free > ENOUGH_MEMORY[loader] else None
    except OSError:
        return None


def _claim() -> tuple[int, int]:
    """An open lock, kept by whoever inherits it, and the port that it stands for."""
    for slot in range(SLOTS):
        path = Path(tempfile.gettempdir()) / f"clustertab-prom-{slot}.lock"
        lock = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        if is_free(FIRST_PORT + slot):
            return lock, FIRST_PORT + slot
        os.close(lock)
    raise RuntimeError(f"{SLOTS} labs are at work already.")


BARE_KEEPER = """
import shutil, subprocess, sys
directory, *command = sys.argv[1:]
server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
sys.stdin.read()
server.kill()
server.wait()
shutil.rmtree(directory, ignore_errors=True)
"""


def _is_ready(url: str) -> None:
    urlopen(f"{url}/-/ready", timeout=2).close()


@contextmanager
def bare(
    lab: Lab,
    *,
    config: str = "global: {}\n",
    files: Mapping[str, str] = MappingProxyType({}),
    scheme: str = "http",
    ready: Callable[[str], object] = _is_ready,
) -> Iterator[str]:
    """The address of a server without any data, of the lab's own package, that takes remote writes.

    It reads that configuration, beside which files of those names have those contents; one that is called `web.yml`
    says whom it lets in. `ready` raises OSError until the address answers.
    """
    lock, port = _claim()
    directory = Path(tempfile.mkdtemp(prefix="clustertab-prom-", dir=_roomy("push")))
    for name, text in {"prometheus.yml": config, **files}.items():
        (directory / name).write_text(text)
    url = f"{scheme}://127.0.0.1:{port}"
    guarded = [f"--web.config.file={directory}/web.yml"] if "web.yml" in files else []
    keeper = subprocess.Popen(
        [
            sys.executable, "-c", BARE_KEEPER, str(directory), str(lab.dir / BINARIES / "prometheus"),
            f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
            "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver", *guarded,
        ],
        stdin=subprocess.PIPE, start_new_session=True, pass_fds=(lock,), env=outliving(),
    )  # fmt: skip
    try:
        _wait_for(url, ready)
        yield url
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(60)
        os.close(lock)


def _wait_for(url: str, ready: Callable[[str], object]) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            ready(url)
            return
        except OSError:
            assert time.monotonic() < end, f"{url} did not answer."
            time.sleep(0.1)


_started: dict[str, Lab] = {}


@contextmanager
def running(loader: str) -> Iterator[Lab]:
    """The lab of this loader, started once in a run."""
    if not SCRIPT.exists():
        pytest.skip(ABSENT)
    if shutil.which("apt-get") is None and not PROGRAMS.exists():
        pytest.skip(
            "The Prometheus lab fetches its package with apt-get, which is not here: run on Debian 12."
        )
    if loader not in _started:
        try:
            _started[loader] = Lab(loader)
        except AbsentError as error:
            pytest.skip(str(error))
    yield _started[loader]


def end() -> None:
    """Purge whatever was started."""
    while _started:
        _started.popitem()[1].purge()


@pytest.fixture(scope="session", params=["push", pytest.param("promtool", marks=pytest.mark.long)])
def prom_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The history as a scraping Prometheus keeps it; then from promtool's blocks, which have no stale markers and
    take minutes to make."""
    with running(request.param) as lab:
        yield lab
    end()


@pytest.fixture(scope="session")
def pushed_lab() -> Iterator[Lab]:
    """The history as a scraping Prometheus keeps it."""
    with running("push") as lab:
        yield lab
    end()
