"""A gap in the archive is found by its names, whatever the size of segments and however timelines change."""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.ops.wal_archive import examine

FIRST = "0000000100000000000000FE"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "base"
    base.mkdir()
    (base / "backup_label").write_text(f"START WAL LOCATION: 0/FE000028 (file {FIRST})\n")
    return base


@pytest.mark.parametrize(
    ("names", "flaw"),
    [
        ([FIRST, "0000000100000000000000FF", "000000010000000100000000"], ""),
        ([FIRST, "0000000200000000000000FF", "000000020000000100000000"], ""),
        (["0000000100000000000000FC", FIRST, "0000000100000000000000FF.part", "00000002.history"], ""),
        (
            [FIRST, "000000010000000100000000", "000000010000000100000001"],
            "WAL segment 0000000100000000000000FF is missing, and without it 2 later ones are of no use.",
        ),
        (
            ["0000000100000000000000FF"],
            f"WAL segment {FIRST} is missing, and without it 1 later ones are of no use.",
        ),
    ],
)
def test_what_is_missing_is_named(base: Path, tmp_path: Path, names: list[str], flaw: str) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    for name in names:
        with (archive / name).open("wb") as file:
            file.truncate(16 << 20)
    archive_state = examine(archive, base=base)
    assert archive_state.flaw == flaw
    assert archive_state.newest_at is not None


def test_an_empty_archive_and_a_segment_cut_short_are_sentences(base: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    assert examine(archive, base=base).flaw == f"The archive {archive} has no WAL segment from {FIRST} on."
    for name, size in ((FIRST, 16 << 20), ("0000000100000000000000FF", 4_096)):
        with (archive / name).open("wb") as file:
            file.truncate(size)
    flaw = examine(archive, base=base).flaw
    assert flaw == "WAL segment 0000000100000000000000FF is cut short: it has 4,096 of 16,777,216 bytes."
