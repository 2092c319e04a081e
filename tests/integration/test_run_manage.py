"""`./run`: the one command, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from portal.dev.embedded.postgres import Postgres
from portal.env import ROOT

PATIENCE = 400  # seconds

COUNT_PEOPLE = """
import json
from portal.core.tenants.models import User
print(json.dumps({"people": User.objects.count()}))
"""


def environ(home: Path) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    return variables | {"CLUSTERTAB_HOME": str(home)}


def start(home: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [ROOT / "run", *command], env=environ(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(home: Path, *command: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    process = start(home, *command)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@pytest.fixture
def launcher() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "run"), run_name="launcher")


def test_a_command_on_an_empty_home_finds_a_database_and_leaves_none_running(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "manage", "shell", "-v", "0", "-c", COUNT_PEOPLE)
    assert (code, json.loads(out), err) == (0, {"people": 0}, "Preparing the database ...\n")
    assert Postgres(tmp_path).processes() == []

    code, out, err = run(tmp_path, "manage", "shell", "-v", "0", "-c", COUNT_PEOPLE)
    assert (code, json.loads(out), err) == (0, {"people": 0}, "")


def test_two_first_commands_at_once_both_succeed(tmp_path: Path) -> None:
    both = [start(tmp_path, "manage", "shell", "-v", "0", "-c", COUNT_PEOPLE) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (0, '{"people": 0}\n'), err
    assert Postgres(tmp_path).processes() == []


def test_a_commands_exit_code_is_passed_on(tmp_path: Path) -> None:
    assert run(tmp_path, "manage", "shell", "-v", "0", "-c", "raise SystemExit(7)")[0] == 7


def test_a_running_database_is_left_running(tmp_path: Path) -> None:
    database = Postgres(tmp_path)
    with database:
        first = database.main_process()
        assert run(tmp_path, "manage", "check")[0] == 0
        assert database.main_process() == first


def test_the_instances_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    run(tmp_path, "manage", "check")
    key = tmp_path / "secret_key"
    first = key.read_text()
    run(tmp_path, "manage", "check")
    assert key.read_text() == first
    assert len(first) >= 50
    assert key.stat().st_mode & 0o777 == 0o600


def test_a_setting_that_cannot_be_meant_is_one_sentence(tmp_path: Path) -> None:
    process = subprocess.run(
        [ROOT / "run", "manage", "check"],
        env=environ(tmp_path) | {"HTTPS": "perhaps"}, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (process.returncode, process.stderr) == (2, "HTTPS is 'perhaps'; say yes or no.\n")


def test_a_command_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    assert run(tmp_path, "frobnicate") == (
        2, "", "There is no command 'frobnicate'; ./run --help lists them.\n",
    )  # fmt: skip
    code, out, _ = run(tmp_path, "--help")
    assert code == 0
    assert "demo [--port N]" in out


def test_a_python_that_is_too_old_is_told_what_to_install(
    launcher: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(launcher["Refusal"], match=r"this is 3\.9: install the packages python3\.11 and"):
        launcher["need_python"]()


def test_a_python_without_venv_is_told_which_package_brings_it(
    launcher: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    version = "{}.{}".format(*sys.version_info[:2])
    with pytest.raises(launcher["Refusal"], match=f"install the package python{version}-venv"):
        launcher["make_venv"]()


def test_an_environment_is_made_with_the_pip_that_python_brings_or_with_one_of_its_own(
    launcher: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = launcher["pip_wheel"]()
    version = subprocess.run(
        [sys.executable, Path(wheel) / "pip", "--version"], capture_output=True, text=True
    )
    assert version.stdout.startswith("pip "), version.stderr

    monkeypatch.setitem(launcher["make_venv"].__globals__, "VENV", str(tmp_path / "venv"))
    launcher["make_venv"]()
    assert not list((tmp_path / "venv" / "bin").glob("pip*"))
    monkeypatch.setitem(launcher["make_venv"].__globals__, "pip_wheel", lambda: None)
    launcher["make_venv"]()
    assert list((tmp_path / "venv" / "bin").glob("pip*"))


def test_an_environment_is_fresh_until_its_locks_or_its_place_change(launcher: dict[str, Any]) -> None:
    fits, stamp = launcher["fits"], launcher["wanted_stamp"]()
    for lock in launcher["LOCKS"]:
        assert fits(dict(stamp), stamp, lock)
    assert not fits(stamp | {"requirements.txt": "another"}, stamp, "requirements.txt")
    assert not fits(stamp | {"root": "elsewhere"}, stamp, "requirements.txt")
    assert not fits({}, stamp, "requirements.txt")


@pytest.mark.parametrize(
    ("command", "database", "lock"),
    [
        ("manage", "", "requirements-demo.txt"),
        ("manage", "postgresql://db/billing", "requirements.txt"),
        ("demo", "", "requirements-demo.txt"),
    ],
)
def test_embedded_servers_are_installed_where_no_database_is_named(
    command: str, database: str, lock: str, launcher: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[str] = []
    inside = launcher[command].__globals__
    monkeypatch.setitem(inside, "environment", installed.append)
    monkeypatch.setitem(inside, "become", lambda *_: 0)
    monkeypatch.setenv("DATABASE_URL", database)
    launcher[command](["prove"])
    assert installed == [lock]


def test_an_installation_says_what_it_is_at_and_shrinks_no_environment(
    tmp_path: Path,
    launcher: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed: list[str] = []
    inside = launcher["prepare"].__globals__
    monkeypatch.setitem(inside, "VENV", str(tmp_path))
    monkeypatch.setitem(inside, "STAMP", str(tmp_path / "stamp"))
    monkeypatch.setitem(inside, "install", installed.append)
    runtime, demo, dev = launcher["LOCKS"]
    stamp = launcher["wanted_stamp"]()
    for before, required, target in (
        ({}, runtime, runtime),
        ({demo: "old"}, runtime, demo),
        ({demo: ""}, dev, dev),
    ):
        launcher["prepare"](before, stamp, required)
        assert installed.pop() == target
        assert json.loads((tmp_path / "stamp").read_text()).keys() >= {"root", runtime, target}
    assert re.fullmatch(r"(environment  \d+\.\d s\n){3}", capsys.readouterr().err)


def test_bytecode_is_kept_in_the_environment_where_it_may_not_be_beside_the_sources(
    launcher: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "elsewhere")
    monkeypatch.delenv(
        "PYTHONPYCACHEPREFIX"
    )  # set before, so that what is set here does not outlive the test
    monkeypatch.setattr(os, "execv", lambda *_: None)
    launcher["become"]("-m", "portal.ops.manage")
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
    assert Path(os.environ["PYTHONPYCACHEPREFIX"]).parent == ROOT / ".venv"


def test_a_failed_installation_says_the_line_that_tells_why(launcher: dict[str, Any]) -> None:
    because = launcher["because"]
    output = b"Collecting celery\nERROR: No matching distribution found for celery\n\n"
    assert because("It failed", output) == "It failed: ERROR: No matching distribution found for celery"
    assert "disk that holds" in because("It failed", b"OSError: [Errno 28] No space left on device")
