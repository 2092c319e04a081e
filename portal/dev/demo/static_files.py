"""Whether the static files that an instance has collected are those of this version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from portal.env import ROOT

# What decides besides our own files: those of Django and allauth change with their versions.
DECIDING = ("requirements.txt", "portal/settings.py", "portal/ops/static.py")


def are_collected(home: Path, static_root: Path) -> bool:
    """Collecting takes two seconds, and looking whether it would change anything a hundredth of one."""
    try:
        collected = (home / "static.sha256").read_text() == digest(static_root)
    except FileNotFoundError:
        return False
    return collected and (static_root / "staticfiles.json").exists()


def note_collected(home: Path, static_root: Path) -> None:
    (home / "static.sha256").write_text(digest(static_root))


def digest(static_root: Path) -> str:
    """Of the names and contents of all sources, and of the place that they are collected into."""
    total = hashlib.sha256(str(static_root).encode())
    for path in _sources():
        total.update(f"\n{path.relative_to(ROOT)}\n".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _sources() -> Iterator[Path]:
    yield from (ROOT / name for name in DECIDING)
    yield from sorted(path for path in (ROOT / "static").rglob("*") if path.is_file())
