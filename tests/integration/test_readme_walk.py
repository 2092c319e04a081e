"""The five minutes of the README, word for word, and the fields that docs/reference/commands.md promises."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portal.dev.embedded.postgres import Postgres
from portal.env import ROOT
from tests.documentation import consoles, table

PATIENCE = 400  # seconds
STEPS = consoles(ROOT / "README.md")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh instance whose database stays up between the commands."""
    place = tmp_path_factory.mktemp("walk")
    with Postgres(place):
        yield place


def printed(home: Path, command: str) -> str:
    """What a command line of a page prints on standard output; it has to succeed."""
    environ = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    done = subprocess.run(
        shlex.split(command), cwd=ROOT, env=environ | {"CLUSTERTAB_HOME": str(home)},
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
    return done.stdout.rstrip("\n")


def test_the_walk_prints_what_the_readme_shows(home: Path) -> None:
    assert [shlex.split(command)[2] for command, _ in STEPS] == [
        "apply",
        "import_usage",
        "assign_account",
        "close_period",
        "close_period",
        "explain_invoice",
        "record_payment",
        "show_invoices",
        "prove",
    ]
    for command, output in STEPS:
        assert printed(home, command) == output, command


def fields(value: Any, at: str = "") -> set[str]:
    """`invoices[].lines[].amount` for each value in an answer; an empty list or object stands for itself."""
    if isinstance(value, dict) and value:
        return {
            path for name, inner in value.items() for path in fields(inner, f"{at}.{name}" if at else name)
        }
    if isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        return {path for inner in value for path in fields(inner, f"{at}[]")}
    return {at}


def promised(command: str) -> set[str]:
    """The fields of a command's table; one that begins with a dot has the path of the field before it."""
    paths = set()
    for row in table("reference/commands.md", command):
        path = ""
        for name in re.findall(r"`([^`]+)`", row["field"]):
            path = path.rpartition(".")[0] + name if name.startswith(".") else name
            paths.add(path)
    return paths


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_each_answer_has_the_fields_that_are_promised(home: Path, step: int) -> None:
    """After the walk: each command again, which changes nothing more and answers in full."""
    command = STEPS[step][0]
    name = shlex.split(command)[2]
    answered = {
        re.sub(r"^quarantined\.lab$", "quarantined.CLUSTER", path)
        for path in fields(json.loads(printed(home, f"{command} --json")))
    }
    if name == "apply":  # nothing is left to change, so the list is empty
        assert answered == {"changed", "dry_run", "changes", "rated_accounts"}
        answered = answered - {"changes"} | {
            f"changes[].{field}" for field in ("what", "field", "before", "after")
        }
    assert answered == promised(name)
