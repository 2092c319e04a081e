"""What every file has to look like, whoever writes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from portal.env import ROOT
from tests.architecture.sources import CODE, nodes, place, python_files

FILE_CEILING = 400  # lines
ONE_FILE = {
    ROOT / "deploy" / "agent" / "clustertab_agent.py",
    ROOT / "deploy" / "slurm" / "clustertab_slurm.py",
}
"""Sites copy these to login nodes: each is one file by its purpose, and no longer than this many lines."""
ONE_FILE_CEILING = 730
FUNCTION_CEILING = 60  # lines, docstring and all
FORBIDDEN_MODULES = {"utils", "helpers", "common", "services", "signals", "misc"}
ROUNDING_PLACE = ROOT / "billing" / "rules" / "money.py"
MONTHS_PLACE = ROOT / "billing" / "rules" / "period.py"


def test_no_file_is_longer_than_400_lines() -> None:
    files = [ROOT / "run", ROOT / "manage.py", *python_files(*CODE)]
    long = {
        place(path, 1): count
        for path in files
        if (count := len(path.read_text().splitlines()))
        > (ONE_FILE_CEILING if path in ONE_FILE else FILE_CEILING)
    }
    assert long == {}


def test_no_function_is_longer_than_60_lines() -> None:
    long = []
    for path in [ROOT / "manage.py", *python_files(*CODE)]:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_CEILING:
                    long.append(f"{place(path, node.lineno)} {node.name}: {lines}")
    assert long == []


def test_modules_are_named_after_what_they_do() -> None:
    named = [path for path in python_files(*CODE) if FORBIDDEN_MODULES & {path.stem, path.parent.name}]
    assert named == []


def test_money_is_rounded_in_one_place() -> None:
    places = []
    for path in python_files("billing", "clusters"):
        if path == ROUNDING_PLACE:
            continue
        places += [place(path, line) for line in rounding(path)]
    assert places == []


def test_no_group_of_a_regular_expression_is_possessive() -> None:
    """Before Python 3.11.5, which Debian 12 does not have, `(?:ab)*+` matches wrongly; `(?>(?:ab)*)` does not."""
    possessive = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+")
    assert possessive.search(r'"(?:\\.[^"]*+)*+"')
    places = [
        place(path, node.lineno)
        for path in [ROOT / "run", *python_files(*CODE)]
        for node in nodes(path)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str | bytes)
        and path != Path(__file__)
        and possessive.search(node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value)
    ]
    assert places == []


def rounding(path: Path) -> list[int]:
    lines = []
    for node in nodes(path):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in {"quantize", "round", "to_integral_value", "to_integral_exact", "Round"}:
            lines.append(node.lineno)
    return lines


def test_months_are_counted_in_one_place() -> None:
    """A year has twelve months in `period.py`; `shifted` says elsewhere which month comes when."""
    places = [
        place(path, node.lineno)
        for path in python_files("billing", "clusters", "portal")
        if path != MONTHS_PLACE
        for node in nodes(path)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod | ast.FloorDiv)
        and isinstance(node.right, ast.Constant)
        and node.right.value == 12
    ]
    assert places == []


def test_no_float_comes_near_money_or_usage() -> None:
    places = []
    for path in python_files("billing", "clusters"):
        places += [place(path, line) for line in floats(path)]
    assert places == []


def floats(path: Path) -> list[int]:
    """Lines with a float literal or any use of the name float or FloatField."""
    lines = []
    for node in nodes(path):
        literal = isinstance(node, ast.Constant) and isinstance(node.value, float)
        named = isinstance(node, ast.Name) and node.id == "float"
        column = isinstance(node, ast.Attribute) and node.attr == "FloatField"
        if literal or named or column:
            lines.append(getattr(node, "lineno", 0))
    return lines


@pytest.mark.parametrize(
    ("code", "floating"),
    [
        ("price = 1.1", [1]),
        ("x = float('1.15')", [1]),
        ("f = models.FloatField()", [1]),
        ("x = Decimal('1.1') * 3", []),
    ],
)
def test_the_look_for_floats_sees_them(tmp_path: Path, code: str, floating: list[int]) -> None:
    (tmp_path / "module.py").write_text(code)
    assert floats(tmp_path / "module.py") == floating


@pytest.mark.parametrize(
    ("code", "rounded"),
    [("x.quantize(cent)", [1]), ("round(x, 2)", [1]), ("Round(F('x'))", [1]), ("x.rounded()", [])],
)
def test_the_look_for_rounding_sees_it(tmp_path: Path, code: str, rounded: list[int]) -> None:
    (tmp_path / "module.py").write_text(code)
    assert rounding(tmp_path / "module.py") == rounded


def test_no_signal_is_hooked_up() -> None:
    """Nobody can follow a change by reading where receivers hang in the air."""
    places = []
    for path in python_files("portal", "billing", "clusters"):
        for node in nodes(path):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module in {"django.dispatch", "django.db.models.signals"}:
                places.append(place(path, getattr(node, "lineno", 0)))
    assert places == []
