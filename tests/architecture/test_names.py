"""A name says what a value is, not what was done with it: `request` instead of `asked`, `row` instead of `found`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import nodes, place, python_files

PARTICIPLES = frozenset(
    "asked beside each found given heard held kept known lost made meant said standing taken told wanted".split()  # noqa: SIM905
)
TERMS = {
    "held": "of a wallet, what its reservations hold; of a job, its state at the scheduler",
    "held_seconds": "for how long a run held its resources",
    "lost": "the state of a dispute, and of a card at its issuer",
    "lost_card": "Stripe's reason of a decline",
}
"""Terms of the field that such a word is part of."""
CEILING = 0.005  # of all bound names of a folder; it only goes down


def bound(tree_nodes: Iterator[ast.AST]) -> Iterator[tuple[str, int]]:
    """(name, line) of what is defined, taken as an argument, stored or imported under another name."""
    for node in tree_nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if not node.name.startswith("test_"):  # these are sentences
                    yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name, node.lineno


def is_participle(name: str) -> bool:
    """`_told`, `KEPT` and `isFound` have one as a part; terms of the field do not count."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    return snake not in TERMS and not PARTICIPLES.isdisjoint(snake.split("_"))


@pytest.mark.parametrize("folder", ["billing", "clusters", "portal", "bench", "tests"])
def test_names_say_what_a_value_is(folder: str) -> None:
    count, participles = 0, []
    for path in python_files(folder):
        for name, line in bound(nodes(path)):
            count += 1
            if is_participle(name):
                participles.append(f"{place(path, line)} {name}")
    assert len(participles) <= CEILING * count, "\n".join(participles)


@pytest.mark.parametrize(
    ("name", "answer"),
    [("_told", True), ("KEPT", True), ("isFound", True), ("made_at", True), ("maker", False)],
)
def test_a_participle_is_recognized_by_the_parts_of_a_name(name: str, answer: bool) -> None:
    assert is_participle(name) is answer
