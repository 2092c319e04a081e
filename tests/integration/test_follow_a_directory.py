"""`import_usage --follow` as a process: it goes on until it is told to end, and survives being killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.models import Cluster, Pull, UsageRecord
from tests.builders import LONG_AGO, a_cluster, a_plan, a_tenant
from tests.integration.operators import Operator, accounting
from tests.stories import prove

pytestmark = pytest.mark.usefixtures("transactional_db")

ROWS, PATIENCE = 22_000, 60  # three transactions of an import


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def stored() -> int:
    return UsageRecord.objects.count()


def a_lab() -> None:
    cluster = a_cluster("gpu1")
    plan = a_plan(prices=[("gpu-hour", {}, "1.37", LONG_AGO)])
    a_tenant("vision-lab", plan=plan, accounts=[(cluster, f"acc{n:02d}") for n in range(4)])


@pytest.mark.one_attempt
def test_it_takes_in_what_comes_until_it_is_told_to_end(database_url: str, tmp_path: Path) -> None:
    a_lab()
    folder = tmp_path / "in"
    folder.mkdir()
    with Operator(database_url) as op, Operator(database_url) as second:
        pid = op.begins("import_usage", "gpu1", "--follow", folder, "--settle", "0")
        until((folder / ".clustertab.lock").exists)
        for count in (10, 20):
            accounting(tmp_path / f"{count}.sacct", rows=count, accounts=4).rename(folder / f"{count}.sacct")
            until((folder / "done" / f"{count}.sacct").exists)
            assert stored() == count
        second.begins("import_usage", "gpu1", "--follow", folder, "--once")
        assert second.ends() == 1
        os.kill(pid, signal.SIGTERM)
        assert op.ends() == 0
        second.does("import_usage", "gpu1", "--follow", folder, "--once")  # the lock went with the process
    prove()


@pytest.mark.one_attempt
def test_told_to_end_in_the_middle_of_a_file_it_ends_and_the_next_goes_on(
    database_url: str, tmp_path: Path
) -> None:
    a_lab()
    accounting(tmp_path / "march.sacct", rows=ROWS, accounts=4)
    with Operator(database_url) as op:
        pid = op.begins("import_usage", "gpu1", "--follow", tmp_path, "--settle", "0")
        until(lambda: stored() > 0)
        os.kill(pid, signal.SIGTERM)
        assert op.ends() == 0
        assert 0 < stored() < ROWS
        assert (tmp_path / "march.sacct").exists()
        assert Pull.objects.get().error == "Stopped before the end of the file, which stays where it is."
        assert Cluster.objects.get().complete_through is None
        op.does("import_usage", "gpu1", "--follow", tmp_path, "--once", "--settle", "0")
    assert stored() == ROWS
    assert (tmp_path / "done" / "march.sacct").exists()
    prove()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_killed_at_any_moment_around_the_end_of_a_file_it_converges(
    seed: int, database_url: str, tmp_path: Path
) -> None:
    a_lab()
    dice = random.Random(seed)
    accounting(tmp_path / "march.sacct", rows=11_000, accounts=4)
    command = ("import_usage", "gpu1", "--follow", tmp_path, "--once", "--settle", "0")
    with Operator(database_url) as op:
        op.is_killed_doing(*command, count=stored, at=10_000, after=dice.uniform(0, 1))
        op.is_killed_doing(*command, count=stored, at=11_000, after=dice.uniform(0, 0.01))
        op.does(*command)
    assert stored() == 11_000
    assert sorted(path.name for path in (tmp_path / "done").iterdir()) == ["march.sacct"]
    assert Cluster.objects.get().complete_through is not None
    prove()
