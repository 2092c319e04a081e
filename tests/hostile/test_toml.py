"""Configuration files, at the shell and in the editor of plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.env import ROOT
from tests.hostile.mangling import INPUTS, LONG, REPEATED, VALUES, Mangler
from tests.hostile.shell import refusal
from tests.scenarios.configuring import PHILLY

pytestmark = [pytest.mark.django_db, pytest.mark.larger]

LAB = (ROOT / "docs" / "examples" / "lab.toml").read_text()
WORDS = [
    "[[", "]]", "[", "]", "{", "}", '"', "'''", "=", "\n", "1979-13-45", "9" * 400, "inf", "nan", "-0", "1e9999",
    "true",
    "[]", "{}", '[["a"]]', "1970-01-01T00:00:00Z", "07:32:00", '"\\u0000"', f'"{LONG}"', LONG, "\x00", "\u202e", "#",
]  # fmt: skip


def spoilt(chance: Mangler, text: str) -> str:
    """Values replaced by others, and words anywhere."""
    lines = text.splitlines()
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(lines))
        key, sign, _ = lines[place].partition(" = ")
        if sign and chance.random() < 0.7:
            lines[place] = f"{key} = {chance.choice((*WORDS, *map(repr, VALUES)))}"
        else:
            at = chance.randrange(len(lines[place]) + 1)
            lines[place] = lines[place][:at] + chance.choice(WORDS) + lines[place][at:]
    return "\n".join(lines)


def test_whatever_stands_in_a_file_is_applied_or_refused_in_sentences(tmp_path: Path) -> None:
    chance, path, refused = Mangler(22), tmp_path / "site.toml", 0
    for number in range(INPUTS):
        text = spoilt(chance, LAB if number % 2 else PHILLY)
        path.write_text(text, encoding="utf-8", errors="replace")
        message = refusal("apply", str(path), "--dry-run")
        refused += bool(message)
        assert REPEATED not in message
    assert 0 < refused < INPUTS


def test_bytes_are_a_sentence_too(tmp_path: Path) -> None:
    chance, path = Mangler(23), tmp_path / "site.toml"
    for _ in range(INPUTS // 4):
        path.write_bytes(chance.spoil(PHILLY.encode()))
        assert REPEATED not in refusal("apply", str(path), "--dry-run")
