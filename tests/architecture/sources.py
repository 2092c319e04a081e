"""The project's own files, as the shape tests look at them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

from portal.env import ROOT

CODE = ("portal", "billing", "clusters", "bench", "tests", "deploy")


def python_files(*directories: str) -> list[Path]:
    """Written by hand: migrations are not."""
    paths = [path for name in directories for path in (ROOT / name).rglob("*.py")]
    return sorted(path for path in paths if "migrations" not in path.parts)


def project_files() -> list[Path]:
    """Tracked by git or about to be; without a repository, all that .gitignore would not hide."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return sorted(path for name in names if (path := ROOT / name).is_file())
    hidden = {".venv", "var", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
    return sorted(
        path for path in ROOT.rglob("*") if path.is_file() and not hidden & set(path.relative_to(ROOT).parts)
    )


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(), filename=str(path)))


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"
