"""A command as an operator gives it."""

from __future__ import annotations

from portal.ops.cli import RefusedError
from tests.scenarios.configuring import run


def refusal(command: str, *arguments: str) -> str:
    """The sentence with which it is refused; "" where it was done. Whatever else is raised fails the test."""
    try:
        run(command, *arguments)
    except RefusedError as refused:
        return str(refused)
    return ""
