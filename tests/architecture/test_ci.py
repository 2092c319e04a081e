"""Which failed tests CI gives a second attempt, and how it sums up."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.env import ROOT

PEERS = (
    "tests/integration/test_slurm_live.py::test_what_runs",
    "tests/web/test_pay_in_a_browser.py::test_a_card[declined one]",
    "tests/integration/test_kill_close.py::test_it_converges[3]",
    "tests/integration/test_race_for_a_wallet.py::test_two_workers",
    "tests/integration/test_slurm_kill.py::test_a_pull",
    *(f"tests/web/test_pages_in_a_browser.py::test_page_{number}" for number in range(6)),
)


SIGNALS = (
    "os.kill",
    "SIGKILL",
    "is_killed_doing",
)  # in the text of a test: it ends a process in the middle of its work


def again(home: Path, *failed: str) -> subprocess.CompletedProcess[str]:
    return ci_second_attempt(with_failed(home, *failed))


def with_failed(home: Path, *failed: str) -> Path:
    cache = home / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
    return home


def ci_second_attempt(home: Path, listed: tuple[str, ...] = PEERS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / ".ci" / "again"],
        cwd=home,
        input="\n".join(listed),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_test_of_another_program_is_asked_once_more(tmp_path: Path) -> None:
    slurm, page = PEERS[:2]
    result = again(tmp_path, page, slurm)
    assert result.returncode == 0
    assert result.stdout.splitlines() == [slurm, page]


def test_arithmetic_stories_pages_kills_and_races_have_one_attempt(tmp_path: Path) -> None:
    for failed in (
        "tests/rules/test_money.py::test_rounding",
        "tests/scenarios/test_close.py::test_march",
        "tests/web/test_invoices.py::test_a_line",
        *PEERS[2:5],
    ):
        result = again(tmp_path, PEERS[1], failed)
        assert result.returncode != 0
        assert result.stdout == ""
        assert failed in result.stderr


@pytest.mark.parametrize(
    "test",
    [
        "test_follow_a_directory.py::test_killed_at_any_moment_around_the_end_of_a_file_it_converges[0]",
        "test_run_manage.py::test_two_first_commands_at_once_both_succeed",
        "test_embedded_peers.py::test_what_was_committed_outlives_kill_9_of_the_database",
        "test_slurm_live.py::test_two_pulls_that_race_are_one",
    ],
)
def test_one_word_of_its_own_name_says_that_a_test_kills_or_races(tmp_path: Path, test: str) -> None:
    test = f"tests/integration/{test}"
    assert ci_second_attempt(with_failed(tmp_path, test), (test,)).returncode != 0
    innocent = "tests/integration/test_slurm_live.py::test_a_trace_of_skills[kill]"
    assert ci_second_attempt(with_failed(tmp_path, innocent), (innocent,)).stdout.splitlines() == [innocent]


def killing() -> Iterator[str]:
    """Each test that kills and is not marked; those of `tests/web` kill nothing."""
    for path in sorted((ROOT / "tests" / "integration").glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            marks = [ast.unparse(decorator) for decorator in node.decorator_list]
            source = ast.get_source_segment(text, node) or ""
            if any(word in source for word in SIGNALS) and "pytest.mark.one_attempt" not in marks:
                yield f"tests/integration/{path.name}::{node.name}"


def test_whatever_kills_is_refused_by_its_name_or_is_marked(tmp_path: Path) -> None:
    tests = tuple(killing())
    assert tests
    assert [
        test for test in tests if ci_second_attempt(with_failed(tmp_path, test), tests).returncode == 0
    ] == []


def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    result = again(tmp_path, *PEERS[5:])
    assert result.returncode != 0
    assert result.stderr == "6 failed: no second attempt.\n"


def test_a_run_that_never_came_to_its_tests_has_no_second_attempt(tmp_path: Path) -> None:
    assert again(tmp_path).returncode != 0
    (tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed").unlink()
    result = ci_second_attempt(tmp_path)
    assert result.returncode != 0
    assert result.stderr == "There is no list of what failed: no second attempt.\n"


def report(home: Path, run: str, *, reasons: tuple[str, ...] = (), **counts: int) -> None:
    numbers = " ".join(f'{name}="{count}"' for name, count in counts.items())
    cases = "".join(f'<testcase name="one"><skipped message="{reason}"/></testcase>' for reason in reasons)
    (home / f"{run}.xml").write_text(f"<testsuites><testsuite {numbers}>{cases}</testsuite></testsuites>")


def summed(home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / ".ci" / "sum", home], capture_output=True, text=True, timeout=60)


def test_both_runs_are_summed_and_what_was_not_tested_is_named_last(tmp_path: Path) -> None:
    browser = "no Chromium here: install Debian's chromium to see the pages"
    report(
        tmp_path, "default", tests=100, failures=1, errors=0, skipped=2, reasons=(browser, browser)
    )  # fmt: skip
    report(
        tmp_path, "peers", tests=50, failures=0, errors=1, skipped=4,
        reasons=(
            *(f"No Slurm of trixie here: let apt-get reach the mirror. ({moment})" for moment in ("E: 1", "E: 2")),
            browser,
            "The Slurm lab is absent: put it at ../shared/labs/slurm/slurm-lab.",
        ),
    )  # fmt: skip
    (tmp_path / "again").write_text(
        "Passed only the second time, alone: tests/web/test_pay.py::test_a_card\n"
    )
    result = summed(tmp_path)
    assert result.stdout.splitlines() == [
        "150 tests in default and peers; 1 of them passed at a second attempt.",
        "143 passed, 1 failed, 6 skipped",
        "Not tested here (2 tests): No Slurm of trixie here: let apt-get reach the mirror.",
        "Not tested here (1 test): The Slurm lab is absent: put it at ../shared/labs/slurm/slurm-lab.",
        f"Not tested here (3 tests): {browser}",
    ]
    assert result.returncode == 0


def test_a_run_without_a_report_is_a_failure(tmp_path: Path) -> None:
    report(tmp_path, "default", tests=3, failures=0, errors=0, skipped=0)
    result = summed(tmp_path)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1] == "The tests of peers did not run."


RUN = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path

if sys.argv[1:] == ["test", "--peers", "--collect-only", "-q", "-m", "not one_attempt and not swept"]:
    print({PEERS[1]!r})
for word in sys.argv:
    if word.startswith("--junitxml="):
        report = Path(word.partition("=")[2])
        outcome = {{"peers.xml": "failure", "again-peers.xml": os.environ["SECOND"]}}.get(report.name, "")
        skipped, failures = int(outcome == "skipped"), int(outcome == "failure")
        report.write_text(
            f"<testsuite tests='1' skipped='{{skipped}}' failures='{{failures}}' errors='0'><testcase>"
            f"{{f'<{{outcome}}/>' if outcome else ''}}</testcase></testsuite>"
        )
        if outcome == "failure":
            Path(".pytest_cache/v/cache/lastfailed").write_text(json.dumps({{{PEERS[1]!r}: True}}))
            sys.exit(1)
"""
"""Stands for `./run`: a page fails beside other programs, and ends as SECOND says at its second attempt."""


def continuous(home: Path, second: str) -> subprocess.CompletedProcess[str]:
    """`.ci/run` over that `./run`, on a machine that lacks nothing."""
    shutil.copytree(ROOT / ".ci", home / ".ci")
    programs = dict.fromkeys(("bin/chromium-headless-shell", "bin/apt-get", "bin/sudo"), "#!/bin/sh\n") | {
        "run": RUN
    }
    (home / "bin").mkdir()
    for name, text in programs.items():
        (home / name).write_text(text)
        (home / name).chmod(0o755)
    with_failed(home)
    environ = os.environ | {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "SECOND": second}
    return subprocess.run([home / ".ci" / "run"], env=environ, capture_output=True, text=True, timeout=60)


def test_a_second_attempt_that_passes_counts(tmp_path: Path) -> None:
    done = continuous(tmp_path, "")
    assert done.stdout.splitlines() == [
        f"Passed only the second time, alone: {PEERS[1]}",
        "2 tests in default and peers; 1 of them passed at a second attempt.",
        "2 passed, 0 failed, 0 skipped",
    ]
    assert done.returncode == 0


@pytest.mark.parametrize("second", ["skipped", "failure"])
def test_a_second_attempt_that_is_skipped_or_fails_does_not(tmp_path: Path, second: str) -> None:
    done = continuous(tmp_path, second)
    assert done.stdout.splitlines() == [
        "2 tests in default and peers; 0 of them passed at a second attempt.",
        "1 passed, 1 failed, 0 skipped",
    ]
    assert done.returncode == 1
