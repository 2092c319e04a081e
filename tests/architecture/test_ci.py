"""Which failed tests CI gives a second attempt, and how it sums up."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from portal.env import ROOT

PEERS = (
    "tests/integration/test_slurm_live.py::test_what_runs",
    "tests/web/test_pay_in_a_browser.py::test_a_card[declined one]",
    "tests/integration/test_kill_close.py::test_it_converges[3]",
    "tests/integration/test_race_for_a_wallet.py::test_two_workers",
    "tests/integration/test_slurm_kill.py::test_a_pull",
    *(f"tests/web/test_pages_in_a_browser.py::test_page_{number}" for number in range(6)),
)


def again(home: Path, *failed: str) -> subprocess.CompletedProcess[str]:
    cache = home / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
    return asked(home)


def asked(home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / ".ci" / "again"], cwd=home, input="\n".join(PEERS), capture_output=True, text=True, timeout=60
    )


def test_a_test_of_another_program_is_asked_once_more(tmp_path: Path) -> None:
    slurm, page = PEERS[:2]
    told = again(tmp_path, page, slurm)
    assert told.returncode == 0
    assert told.stdout.splitlines() == [slurm, page]


def test_arithmetic_stories_pages_kills_and_races_have_one_attempt(tmp_path: Path) -> None:
    for failed in (
        "tests/rules/test_money.py::test_rounding",
        "tests/scenarios/test_close.py::test_march",
        "tests/web/test_invoices.py::test_a_line",
        *PEERS[2:5],
    ):
        told = again(tmp_path, PEERS[1], failed)
        assert told.returncode != 0
        assert told.stdout == ""
        assert failed in told.stderr


def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    told = again(tmp_path, *PEERS[5:])
    assert told.returncode != 0
    assert told.stderr == "6 failed: no second attempt.\n"


def test_a_run_that_never_came_to_its_tests_has_no_second_attempt(tmp_path: Path) -> None:
    assert again(tmp_path).returncode != 0
    (tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed").unlink()
    told = asked(tmp_path)
    assert told.returncode != 0
    assert told.stderr == "There is no list of what failed: no second attempt.\n"


def report(home: Path, run: str, *, reason: str = "", **counts: int) -> None:
    numbers = " ".join(f'{name}="{count}"' for name, count in counts.items())
    case = f'<testcase name="one"><skipped message="{reason}"/></testcase>' if reason else ""
    (home / f"{run}.xml").write_text(f"<testsuites><testsuite {numbers}>{case}</testsuite></testsuites>")


def summed(home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / ".ci" / "sum", home], capture_output=True, text=True, timeout=60)


def test_both_runs_are_summed_and_what_was_not_tested_is_named_last(tmp_path: Path) -> None:
    report(tmp_path, "default", tests=100, failures=1, errors=0, skipped=2)
    report(
        tmp_path, "peers", tests=50, failures=0, errors=1, skipped=4,
        reason="No Slurm of trixie here, and its packages cannot be installed: no network",
    )  # fmt: skip
    (tmp_path / "again").write_text(
        "Passed only the second time, alone: tests/web/test_pay.py::test_a_card\n"
    )
    told = summed(tmp_path)
    assert told.stdout.splitlines() == [
        "150 tests in default and peers; 1 of them passed at a second attempt.",
        "143 passed, 1 failed, 6 skipped",
        "Not tested here: Slurm of trixie, which cannot be installed.",
    ]
    assert told.returncode == 0


def test_a_run_without_a_report_is_a_failure(tmp_path: Path) -> None:
    report(tmp_path, "default", tests=3, failures=0, errors=0, skipped=0)
    told = summed(tmp_path)
    assert told.returncode == 1
    assert told.stdout.splitlines()[-1] == "The tests of peers did not run."
