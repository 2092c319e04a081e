"""The tables and examples of the documentation, as tests read them."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import dropwhile, takewhile
from pathlib import Path

from portal.env import ROOT

DOCS = ROOT / "docs"


def table(page: str, heading: str) -> list[dict[str, str]]:
    """The rows of the first table below the heading of docs/PAGE; cells by the name of their column."""
    text = (DOCS / page).read_text()
    match = re.search(rf"^#+ {re.escape(heading)}$\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"docs/{page} has no heading {heading!r}"
    below = dropwhile(lambda line: not line.startswith("|"), match[1].splitlines())
    lines = list(takewhile(lambda line: line.startswith("|"), below))
    assert len(lines) > 2, f"docs/{page} has no table below {heading!r}"
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(header, row, strict=True)) for row in rows]


def number(cell: str) -> Fraction:
    """`2,678,400`, `3,601 s`, `1/7`, `20 %` or `0.67`, exactly."""
    return Fraction(cell.replace(",", "").rstrip(" s%"))


def consoles(page: Path) -> list[tuple[str, str]]:
    """The commands of a page's console blocks with what it says that they print, in order."""
    steps: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            steps.append((command, output.rstrip("\n")))
    return steps
