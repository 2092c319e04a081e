"""What every file has to look like, whoever writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
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

Tree = Iterable[ast.AST]
Look = Callable[[Tree], Iterator[tuple[int, str]]]
"""Lines of a file that are not right, and what is to be said of each."""


def test_no_file_is_longer_than_400_lines() -> None:
    files = [ROOT / "run", ROOT / "manage.py", *python_files(*CODE)]
    long = {
        place(path, 1): count
        for path in files
        if (count := len(path.read_text().splitlines()))
        > (ONE_FILE_CEILING if path in ONE_FILE else FILE_CEILING)
    }
    assert long == {}


def long_functions(tree: Tree) -> Iterator[tuple[int, str]]:
    for node in tree:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_CEILING:
                yield node.lineno, f" {node.name}: {lines}"


POSSESSIVE = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+")


def possessive_groups(tree: Tree) -> Iterator[tuple[int, str]]:
    for node in tree:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            if POSSESSIVE.search(text):
                yield node.lineno, ""


def rounding(tree: Tree) -> Iterator[tuple[int, str]]:
    for node in tree:
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in {"quantize", "round", "to_integral_value", "to_integral_exact", "Round"}:
            yield node.lineno, ""


def counted_months(tree: Tree) -> Iterator[tuple[int, str]]:
    for node in tree:
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mod | ast.FloorDiv)
            and isinstance(node.right, ast.Constant)
            and node.right.value == 12
        ):
            yield node.lineno, ""


def floats(tree: Tree) -> Iterator[tuple[int, str]]:
    """A float literal or any use of the name float or FloatField."""
    for node in tree:
        literal = isinstance(node, ast.Constant) and isinstance(node.value, float)
        named = isinstance(node, ast.Name) and node.id == "float"
        column = isinstance(node, ast.Attribute) and node.attr == "FloatField"
        if literal or named or column:
            yield getattr(node, "lineno", 0), ""


def signals(tree: Tree) -> Iterator[tuple[int, str]]:
    for node in tree:
        module = node.module if isinstance(node, ast.ImportFrom) else None
        if module in {"django.dispatch", "django.db.models.signals"}:
            yield getattr(node, "lineno", 0), ""


PRODUCT = ("portal", "billing", "clusters")
LOOKS: Mapping[Look, tuple[str, ...]] = {
    long_functions: ("manage.py", *CODE),
    possessive_groups: ("run", *CODE),
    rounding: ("billing", "clusters"),
    counted_months: PRODUCT,
    floats: ("billing", "clusters"),
    signals: PRODUCT,
}
"""At which folders and files each looks."""
SPARED = {(possessive_groups, Path(__file__)), (rounding, ROUNDING_PLACE), (counted_months, MONTHS_PLACE)}


@cache
def places() -> Mapping[Look, list[str]]:
    """What each look sees. All look at a file one after the other: to read it takes longer than to look at it."""
    seen: dict[Look, list[str]] = {look: [] for look in LOOKS}
    for path in [ROOT / "run", ROOT / "manage.py", *python_files(*CODE)]:
        tree = list(nodes(path))
        for look, parts in LOOKS.items():
            if path.relative_to(ROOT).parts[0] in parts and (look, path) not in SPARED:
                seen[look] += [place(path, line) + words for line, words in look(tree)]
    return seen


def test_no_function_is_longer_than_60_lines() -> None:
    assert places()[long_functions] == []


def test_modules_are_named_after_what_they_do() -> None:
    named = [path for path in python_files(*CODE) if FORBIDDEN_MODULES & {path.stem, path.parent.name}]
    assert named == []


def test_money_is_rounded_in_one_place() -> None:
    assert places()[rounding] == []


def test_no_group_of_a_regular_expression_is_possessive() -> None:
    """Before Python 3.11.5, which Debian 12 does not have, `(?:ab)*+` matches wrongly; `(?>(?:ab)*)` does not."""
    assert POSSESSIVE.search(r'"(?:\\.[^"]*+)*+"')
    assert places()[possessive_groups] == []


def test_months_are_counted_in_one_place() -> None:
    """A year has twelve months in `period.py`; `shifted` says elsewhere which month comes when."""
    assert places()[counted_months] == []


def test_no_float_comes_near_money_or_usage() -> None:
    assert places()[floats] == []


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
    assert [line for line, _ in floats(nodes(tmp_path / "module.py"))] == floating


@pytest.mark.parametrize(
    ("code", "rounded"),
    [("x.quantize(cent)", [1]), ("round(x, 2)", [1]), ("Round(F('x'))", [1]), ("x.rounded()", [])],
)
def test_the_look_for_rounding_sees_it(tmp_path: Path, code: str, rounded: list[int]) -> None:
    (tmp_path / "module.py").write_text(code)
    assert [line for line, _ in rounding(nodes(tmp_path / "module.py"))] == rounded


def test_no_signal_is_hooked_up() -> None:
    """Nobody can follow a change by reading where receivers hang in the air."""
    assert places()[signals] == []
