"""Every table of the database is of one kind of the table of retention, in the code and in the docs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from django.apps import apps

from portal.core.audit.tracking import TRACKED
from portal.env import ROOT
from portal.ops import old_rows
from portal.ops.retention import KINDS, LAW, TERMS
from tests.architecture.sources import nodes, place, python_files

APART = {"migrations.Migration"}
DOCS = ROOT / "docs" / "reference" / "retention.md"
PRODUCT = ("portal", "billing", "clusters")
STATEMENT = re.compile(r"\b(?:DELETE FROM|TRUNCATE) (?:TABLE )?([a-z_]+)")
EMPTY = {
    "clusters.CapacityInterval"
}  # of no length, or at moments that have not come: nothing was seen in them


def test_every_table_is_of_one_kind() -> None:
    """A new model has to say how long its rows stay: give it to a kind of `portal.ops.retention`."""
    models = {model._meta.label for model in apps.get_models(include_auto_created=True)} - APART
    named = Counter(name for kind in KINDS for name in kind.models)
    assert {name for name, times in named.items() if times > 1} == set()
    assert models - named.keys() == set()
    assert named.keys() - models == set()


def test_what_a_kind_says_is_erased_is_erased_by_the_command_and_nothing_else_is() -> None:
    assert [kind.name for kind in KINDS if kind.erasable] == list(old_rows.ERASABLE)


def test_the_docs_have_this_table() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \|$", DOCS.read_text(), re.MULTILINE)
    assert rows == [(kind.name, kind.holds, kind.stays) for kind in KINDS]


def test_nothing_deletes_rows_that_stay_for_good() -> None:
    stays = {name: kind.stays for kind in KINDS for name in kind.models}
    tracked = {each.model._meta.label for each in TRACKED}
    deleted = [*deletions()]
    wrong = [
        f"{where} deletes {model}, which stays {stays[model]}"
        for where, model in deleted
        if (stays.get(model) == LAW and model not in EMPTY)
        or (stays.get(model) == TERMS and model not in tracked)
    ]
    assert wrong == []
    seen = {model for _, model in deleted}
    assert {"billing.Reservation", "billing.CloseResult", "clusters.VanishedRun", "billing.DebtTerms"} <= seen


def deletions() -> Iterator[tuple[str, str]]:
    """Where rows of which model are deleted: by statements, and by `.delete()` of what a function names as a model."""
    tables = {model._meta.db_table: model._meta.label for model in apps.get_models()}
    for path in (path for name in PRODUCT for path in (ROOT / name).rglob("*")):
        if path.suffix in {".py", ".sql"} and "migrations" not in path.parts:
            text = path.read_text()
            for match in STATEMENT.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                yield place(path, line), tables.get(match[1], match[1])
    models = {model.__name__: model._meta.label for model in apps.get_models()}
    for path in python_files(*PRODUCT):
        for function in nodes(path):
            if isinstance(function, ast.FunctionDef):
                for line, root in _deleted(function):
                    for name in {root} | _origins(function, root):
                        if name in models:
                            yield place(path, line), models[name]


def _deleted(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """The line of each `.delete()`, and the name that its expression begins with."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "delete":
            yield node.lineno, re.split(r"\W", ast.unparse(node.func.value), maxsplit=1)[0]


def _origins(function: ast.FunctionDef, name: str) -> set[str]:
    """All names in the annotation of this argument, or in what is assigned to this variable."""
    sources: list[ast.AST | None] = []
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.arg == name:
            sources.append(node.annotation)
        elif isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            sources.append(node.value)
        elif isinstance(node, ast.For) and ast.unparse(node.target) == name:
            sources.append(node.iter)
    trees = (tree for source in sources if source is not None for tree in ast.walk(source))
    return {tree.id for tree in trees if isinstance(tree, ast.Name)}
