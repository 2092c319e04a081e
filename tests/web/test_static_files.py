"""What pages are made of: nothing inline that the content policy refuses, nothing without its licence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
PAGES = [path for path in TEMPLATES if "emails" not in path.parts]  # mail knows no content policy
VENDORED = sorted(path for path in (ROOT / "static" / "vendor").iterdir() if path.is_dir())


@pytest.mark.parametrize("template", PAGES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_a_page_carries_no_inline_script_or_style(template: Path) -> None:
    text = template.read_text()

    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|hx-on", text)
    assert all("src=" in tag or "application/json" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize("folder", VENDORED, ids=lambda path: path.name)
def test_what_others_made_is_pinned_and_comes_with_its_licence(folder: Path) -> None:
    assert re.fullmatch(r"[a-z-]+-\d+\.\d+\.\d+", folder.name)
    assert (
        "Copyright" in (folder / "LICENSE").read_text()
        or "Permission to use" in (folder / "LICENSE").read_text()
    )


@pytest.mark.parametrize("folder", VENDORED, ids=lambda path: path.name)
def test_no_file_names_a_source_map_that_is_not_there(folder: Path) -> None:
    texts = [path for path in folder.iterdir() if path.suffix in {".js", ".css"}]

    assert [path.name for path in texts if "sourceMappingURL" in path.read_text()] == []


def test_every_icon_that_a_page_asks_for_is_in_the_sprite() -> None:
    sprite = (ROOT / "static/vendor/tabler-icons-3.51.0/icons.svg").read_text()
    icons = {name for path in TEMPLATES for name in re.findall(r'{% icon "([^"]+)"', path.read_text())}

    assert icons
    assert {name for name in icons if f'id="{name}"' not in sprite} == set()
