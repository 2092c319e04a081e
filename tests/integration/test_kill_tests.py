"""A run of the tests that is killed leaves no server, lab or browser behind, and is in nobody's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path

import pytest

from portal.env import ROOT
from tests import keepers
from tests.integration.hanging import READY
from tests.integration.hanging_alone import HOME
from tests.integration.prom_lab import ABSENT
from tests.integration.prom_lab import SCRIPT as PROMETHEUS
from tests.integration.slurm_lab import until, why_not
from tests.web.browser import SKIP_REASON

HANGING = "tests/integration/hanging.py"
ALONE = "tests/integration/hanging_alone.py"
PATIENCE = 240  # seconds, within which the labs have started, or have ended


def pytest_in(ready: Path, test: str, *words: str, file: str = HANGING) -> subprocess.Popen[bytes]:
    """A run of its own, which heeds SIGINT though this one may have begun in the background, where it is ignored.

    Whatever it starts has the name of the file in its environment.
    """
    return subprocess.Popen(
        [
            *("env", "--default-signal=INT", sys.executable, "-m", "pytest"),
            *("-q", "-p", "no:cacheprovider", *words, f"{file}::{test}"),
        ],
        cwd=ROOT, env=os.environ | {READY: str(ready)}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@contextmanager
def hanging(ready: Path, test: str, *words: str, file: str = HANGING) -> Iterator[subprocess.Popen[bytes]]:
    with pytest_in(ready, test, *words, file=file) as run:
        try:
            until(lambda: ready.exists() or run.poll() is not None, seconds=PATIENCE)
            assert run.poll() is None
            yield run
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)


Processes = dict[tuple[int, str], str]
"""What each runs, by its id and the moment of its beginning."""


def started_by(run: subprocess.Popen[bytes], ready: Path) -> Processes:
    """All that the run has started, and what that started."""
    among = keepers.processes()
    mark = f"{READY}={ready}".encode()
    first = {run.pid} | {pid for pid, process in among.items() if mark in process.environ}
    pids = keepers.with_children(first, among) & among.keys()
    programs: Processes = {}
    for pid in pids:
        with suppress(FileNotFoundError):  # it ended since it was listed
            programs[pid, among[pid].began] = str(Path(f"/proc/{pid}/exe").readlink())
    return programs


def left_of(before: Processes, ready: Path) -> list[str]:
    """What of it still runs, and what came after."""
    among = keepers.processes()
    mark = f"{READY}={ready}".encode()
    return [
        f"{pid} {process.directory}"
        for pid, process in among.items()
        if (pid, process.began) in before or mark in process.environ
    ]


def killed(run: subprocess.Popen[bytes]) -> None:
    run.kill()


def loses_its_workers(run: subprocess.Popen[bytes]) -> None:
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    workers = [pid for pid in children if b"sys.stdin.readline" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert workers
    for pid in workers:
        os.kill(int(pid), signal.SIGKILL)


def interrupted(run: subprocess.Popen[bytes]) -> None:
    os.killpg(run.pid, signal.SIGINT)


@pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or "")
@pytest.mark.parametrize(
    "ends", [killed, *(pytest.param(end, marks=pytest.mark.long) for end in (loses_its_workers, interrupted))]
)
def test_no_database_redis_or_browser_is_left(
    ends: Callable[[subprocess.Popen[bytes]], None], tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    with hanging(ready, "test_all_of_it_runs", "-n", "2") as run:
        before = started_by(run, ready)
        for program in ("postgres", "redis-server", "chrom"):
            assert any(program in image for image in before.values()), program
        ends(run)
        assert run.wait(PATIENCE) != 0
    until(lambda: not left_of(before, ready), seconds=PATIENCE)
    with pytest_in(tmp_path / "next", "test_the_next_run_finds_nothing_of_it") as following:
        assert following.wait(PATIENCE) == 0


def pipe_to_keeper(run: subprocess.Popen[bytes]) -> BufferedWriter:
    """Another end of what tells the run's keeper that the run is over: while it is open, the keeper waits."""
    own = f"{keepers.OWN}=1".encode()
    among = keepers.processes()
    [keeper] = [pid for pid, process in among.items() if process.parent == run.pid and own in process.environ]
    return Path(f"/proc/{keeper}/fd/0").open("wb")


def test_a_run_that_follows_a_killed_one_at_once_is_not_tidied_away_with_it(tmp_path: Path) -> None:
    test = "test_its_database_answers_until_it_may_end"
    before, after = tmp_path / "before", tmp_path / "after"
    for directory in (before, after):
        directory.mkdir()
    with hanging(before / "ready", test, file=ALONE) as run, pipe_to_keeper(run) as pipe:
        home = Path((before / HOME).read_text())
        run.kill()
        run.wait(PATIENCE)
        with hanging(after / "ready", test, file=ALONE) as following:
            assert Path((after / HOME).read_text()) != home
            pipe.close()
            until(lambda: not home.exists(), seconds=PATIENCE)
            (after / "ready").unlink()
            assert following.wait(PATIENCE) == 0


@pytest.mark.skipif(why_not() != "", reason=why_not())
@pytest.mark.skipif(not PROMETHEUS.exists(), reason=ABSENT)
def test_no_slurm_and_no_prometheus_is_left(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with hanging(ready, "test_the_labs_run") as run:
        before = started_by(run, ready)
        for daemon in ("slurmctld", "slurmdbd", "slurmrestd", "mariadbd", "munged", "prometheus"):
            assert any(daemon in image for image in before.values()), daemon
        run.kill()
    until(lambda: not left_of(before, ready), seconds=PATIENCE)
