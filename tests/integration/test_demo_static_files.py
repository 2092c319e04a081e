"""Static files are collected again when what they are made of has changed, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.dev.demo import static_files
from portal.dev.demo.static_files import are_collected, note_collected


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*static_files.DECIDING, "static/portal.css"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(static_files, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def home(sources: Path) -> Path:
    """An instance that has collected them."""
    home = sources / "home"
    (home / "static").mkdir(parents=True)
    (home / "static" / "staticfiles.json").touch()
    assert not are_collected(home, home / "static")
    note_collected(home, home / "static")
    return home


def test_nothing_is_collected_twice(home: Path) -> None:
    assert are_collected(home, home / "static")


@pytest.mark.parametrize("name", [*static_files.DECIDING, "static/portal.css", "static/new.js"])
def test_whatever_changes_the_files_has_them_collected_again(name: str, home: Path, sources: Path) -> None:
    (sources / name).write_text("of another version")
    assert not are_collected(home, home / "static")


def test_a_file_that_has_gone_counts_as_a_change(home: Path, sources: Path) -> None:
    (sources / "static" / "portal.css").unlink()
    assert not are_collected(home, home / "static")


def test_another_place_is_empty(home: Path) -> None:
    (home / "elsewhere").mkdir()
    (home / "elsewhere" / "staticfiles.json").touch()
    assert not are_collected(home, home / "elsewhere")
    (home / "static" / "staticfiles.json").unlink()
    assert not are_collected(home, home / "static")
