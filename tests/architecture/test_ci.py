"""Which failed tests CI gives a second attempt."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from portal.env import ROOT


def again(home: Path, *failed: str) -> subprocess.CompletedProcess[str]:
    cache = home / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
    return subprocess.run([ROOT / ".ci" / "again"], cwd=home, capture_output=True, text=True, timeout=60)


def test_a_test_of_another_program_is_asked_once_more(tmp_path: Path) -> None:
    slurm = "tests/integration/test_slurm_live.py::test_what_runs"
    page = "tests/web/test_pay.py::test_a_card[declined one]"
    told = again(tmp_path, page, slurm)
    assert told.returncode == 0
    assert told.stdout.splitlines() == [slurm, page]


def test_arithmetic_stories_kills_and_races_have_one_attempt(tmp_path: Path) -> None:
    for failed in (
        "tests/rules/test_money.py::test_rounding",
        "tests/scenarios/test_close.py::test_march",
        "tests/integration/test_kill_close.py::test_it_converges[3]",
        "tests/integration/test_race_for_a_wallet.py::test_two_workers",
        "tests/integration/test_slurm_kill.py::test_a_pull",
    ):
        told = again(tmp_path, "tests/web/test_pay.py::test_a_card", failed)
        assert told.returncode != 0
        assert told.stdout == ""
        assert failed in told.stderr


def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    told = again(tmp_path, *(f"tests/web/test_pages.py::test_page_{number}" for number in range(6)))
    assert told.returncode != 0
    assert told.stderr == "6 failed: no second attempt.\n"


def test_a_run_that_never_came_to_its_tests_has_no_second_attempt(tmp_path: Path) -> None:
    assert again(tmp_path).returncode != 0
    (tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed").unlink()
    told = subprocess.run([ROOT / ".ci" / "again"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert told.returncode != 0
    assert told.stderr == "There is no list of what failed: no second attempt.\n"
