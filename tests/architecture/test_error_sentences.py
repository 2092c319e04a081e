"""Each code that an error is raised with has its sentence, and the values that this wants."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from string import Formatter

import pytest

from clusters.connectors.base import ConnectorError
from clusters.connectors.row_messages import SENTENCES as ROW_SENTENCES
from portal.env import ROOT
from portal.errors import CodedError, compose
from portal.sentences import sentence
from tests.architecture.sources import nodes, place, python_files

PRODUCT = ("billing", "clusters", "portal")
ALL_CODED = (
    "billing/rules",
    "billing/dunning",
    "billing/emails",
    "billing/simulation",
    "clusters/connectors",
    "portal/core/tenants",
)


def coded_errors() -> dict[str, type[CodedError]]:
    """All classes by their names, however deep below `CodedError`."""
    for path in python_files(*PRODUCT):  # loads whatever defines one
        if re.search(r"class \w+\(\w*Error\b", path.read_text()):
            __import__(".".join(path.relative_to(ROOT).with_suffix("").parts))
    classes: dict[str, type[CodedError]] = {}
    waiting = CodedError.__subclasses__()
    while waiting:
        one = waiting.pop()
        assert classes.setdefault(one.__name__, one) is one, f"two errors are called {one.__name__}"
        waiting += one.__subclasses__()
    return classes


def scopes(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """The innermost function around each node, or the module."""
    scope = dict.fromkeys(ast.walk(tree), tree)
    for function in ast.walk(tree):  # the outer ones first
        if isinstance(function, ast.FunctionDef):
            scope.update(dict.fromkeys(ast.walk(function), function))
    return scope


def literals(node: ast.expr, scope: ast.AST, sentences: Mapping[str, str]) -> set[str]:
    """The codes that an expression may be: a text, a choice between two, a name that such were assigned to, or
    each of the table that a text with a variable fits."""
    match node:
        case ast.JoinedStr():
            parts = [
                re.escape(str(one.value)) if isinstance(one, ast.Constant) else "[a-z]+"
                for one in node.values
            ]
            fitting = {code for code in sentences if re.fullmatch("".join(parts), code)}
            return fitting or {ast.unparse(node)}
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp():
            return literals(node.body, scope, sentences) | literals(node.orelse, scope, sentences)
        case ast.Name():
            return {
                text
                for assigned in ast.walk(scope)
                if isinstance(assigned, ast.Assign)
                and any(isinstance(one, ast.Name) and one.id == node.id for one in assigned.targets)
                for text in literals(assigned.value, scope, sentences)
            }
    return set()


Made = tuple[str, str, Mapping[str, str], set[str | None]]
"""Where, code, table of sentences, and names of the values that it is made with (None: any)."""


@cache
def made() -> list[Made]:
    """All of the product's: to read its sources takes seconds."""
    return list(_made())


def _made() -> Iterator[Made]:
    classes = coded_errors()
    for path in python_files(*PRODUCT):
        tree = ast.parse(path.read_text())
        for node, scope in scopes(tree).items():
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            keywords = {one.arg: one.value for one in node.keywords}
            if name in classes and node.args:
                sentences = classes[name].sentences
                for code in literals(node.args[0], scope, sentences):
                    yield place(path, node.lineno), code, sentences, set(keywords)
            elif name == "BadRow" and isinstance(
                values := keywords.get("values", ast.Dict([], [])), ast.Dict
            ):
                names: set[str | None] = {getattr(key, "value", None) for key in values.keys}
                for code in literals(keywords["code"], scope, ROW_SENTENCES):
                    yield place(path, node.lineno), code, ROW_SENTENCES, names


def test_every_code_has_a_sentence_with_no_other_values_than_it_is_raised_with() -> None:
    calls = made()
    assert len({code for _, code, _, _ in calls}) > 120
    for where, code, sentences, names in calls:
        if code not in sentences:
            assert " " in code, f"{where}: {code} has no sentence"  # a sentence itself
            continue
        fields = {field for _, field, _, _ in Formatter().parse(sentences[code]) if field}
        assert None in names or fields <= names, f"{where}: {code} lacks {fields - names}"


@pytest.mark.parametrize("wing", ALL_CODED)
def test_no_error_of_a_wing_with_codes_is_a_raw_sentence(wing: str) -> None:
    raw = [
        place(path, node.lineno)
        for path in python_files(wing)
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        and [getattr(base, "id", "") for base in node.bases] == ["Exception"]
    ]
    assert not raw


def test_every_sentence_is_said_somewhere() -> None:
    tables = {id(one.sentences): one for one in coded_errors().values()}.values()
    texts = Counter(code for _, code, _, _ in made())
    for path in python_files(*PRODUCT):
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts[node.value] += 1
    for one in tables:
        unsaid = [code for code in one.sentences if texts[code] < 2]  # the table itself has it once
        assert not unsaid, f"{one.__name__}: {unsaid}"


@pytest.mark.parametrize("say", [str, sentence])
def test_an_error_is_said_by_its_code_and_values(say: type[str]) -> None:
    error = ConnectorError("answer-too-slow", retry=True, address="https://slurm.example.org", seconds=300)
    assert (error.code, error.values) == (
        "answer-too-slow", {"address": "https://slurm.example.org", "seconds": 300},
    )  # fmt: skip
    assert say(error) == (
        "https://slurm.example.org gave no whole answer within 300 s; it is overloaded, or was asked for too much."
    )


def test_an_error_within_an_error_is_said_in_the_same_language() -> None:
    sentences = {"outer": "It failed: {cause}", "inner": "{what} is no number."}

    class OwnError(CodedError):
        pass

    OwnError.sentences = sentences
    error = OwnError("outer", cause=OwnError("inner", what="{x}"))
    assert str(error) == "It failed: {x} is no number."
    german = {
        "It failed: {cause}": "Es ging nicht: {cause}",
        "{what} is no number.": "{what} ist keine Zahl.",
    }
    assert error.sentence(lambda text: german[text]) == "Es ging nicht: {x} ist keine Zahl."
    assert compose(sentences, "inner", {}) == "… is no number."
