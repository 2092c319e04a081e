"""Statements in `.sql` files, beside the modules that run them. Each stands whole: psql takes it once its placeholders
are filled.

A line `-- name: NAME` begins a statement; comments right below it say what it does, and are not sent to the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("clusters", "billing", "portal")
_NAME = re.compile(r"^-- name: (.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, or a few that are sent together; `about` is one line per comment."""

    name: str
    about: str
    text: str


@cache
def read(path: Path) -> Mapping[str, Statement]:
    """The statements of a file by their names, in its order."""
    _, *parts = _NAME.split(path.read_text())
    statements: dict[str, Statement] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        lines = body.strip().splitlines()
        start = next((place for place, line in enumerate(lines) if not line.startswith("--")), len(lines))
        about = "\n".join(line.removeprefix("--").strip() for line in lines[:start])
        statements[name] = Statement(name, about, "\n".join(lines[start:]).removesuffix(";"))
    return statements


class Statements:
    """The statements of one file as attributes: `sql.MERGE`."""

    def __init__(self, module: str, file: str) -> None:
        """`module` is the `__file__` of the module that the file stands beside."""
        self.by_name = {name: one.text for name, one in read(Path(module).with_name(file)).items()}

    def __getattr__(self, name: str) -> str:
        try:
            return self.by_name[name]
        except KeyError:
            raise AttributeError(name) from None


def every() -> Iterator[tuple[str, Statement]]:
    """All statements of the product, each by its whole name: "billing.rating.rate_usage.CUTS"."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.sql")):
            place = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for statement in read(path).values():
                yield f"{place}.{statement.name}", statement
