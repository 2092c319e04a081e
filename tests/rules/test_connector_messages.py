"""Each code that a connector raises has its sentence, and the values that this wants."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from clusters.connectors.base import ConnectorError
from clusters.connectors.messages import SENTENCES
from clusters.messages import sentence

ROOT = Path(__file__).parents[2]
MODULES = [
    *(path for path in (ROOT / "clusters").rglob("*.py") if path.name != "messages.py"),
    *(ROOT / "portal" / "ops").glob("*.py"),
    *(ROOT / "billing" / "rating").glob("*.py"),
]


def raised() -> Iterator[tuple[str, set[str | None]]]:
    """Codes with the names of the values that they are raised with."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and any(one.arg == "retry" for one in node.keywords) and node.args:
                names = {one.arg for one in node.keywords}
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str) and "-" in part.value:
                        yield part.value, names


def test_every_code_has_a_sentence_with_no_other_values_than_it_is_raised_with() -> None:
    codes = dict(raised())
    assert len(codes) > 90
    for code, names in codes.items():
        fields = {field for _, field, _, _ in Formatter().parse(SENTENCES[code]) if field}
        assert None in names or fields <= names, code


def test_every_sentence_is_said_somewhere() -> None:
    texts = {
        node.value
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not SENTENCES.keys() - texts


@pytest.mark.parametrize("say", [str, sentence])
def test_an_error_is_said_by_its_code_and_values(say: type[str]) -> None:
    error = ConnectorError("answer-too-slow", retry=True, address="https://slurm.example.org", seconds=300)
    assert (error.code, error.values) == (
        "answer-too-slow", {"address": "https://slurm.example.org", "seconds": 300},
    )  # fmt: skip
    assert say(error) == (
        "https://slurm.example.org gave no whole answer within 300 s; it is overloaded, or was asked for too much."
    )
