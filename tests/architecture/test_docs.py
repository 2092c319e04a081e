"""The documentation is complete, and nothing in it leads nowhere."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import django.core.management
import pytest
from django.core.management import BaseCommand, find_commands, get_commands, load_command_class

from portal.env import ROOT
from portal.ops.cli import OperatorCommand
from tests.documentation import DOCS

COMMANDS = sorted(
    path.stem
    for path in (ROOT / "portal" / "ops" / "management" / "commands").glob("*.py")
    if path.stem != "__init__"
)
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *(ROOT / name for name in ("README.md", "DEVELOPERS.md", "CHANGELOG.md", "bench/README.md")),
    ]
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """As they are made from headings: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[str, str]]:
    """Targets within the project, as (path, anchor)."""
    targets = [unquote(target).partition("#") for target in LINK.findall(prose(page)) if "://" not in target]
    return [(path, anchor) for path, _, anchor in targets]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_empty_line_splits_no_table(page: Path) -> None:
    """Rows behind it would be shown as text: a table begins with its names and the line below them."""
    tables = re.findall(r"(?:^\|.*\n?)+", prose(page), re.MULTILINE)
    assert [table for table in tables if not re.match(r".*\n\|[-:| ]+\|\n", table)] == []


def test_the_page_for_developers_is_short() -> None:
    assert len((ROOT / "DEVELOPERS.md").read_text().split()) <= 1800


def test_the_look_for_links_sees_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A month, closed\n[one](a.md#b) and ![two](img/x.png)\n```\n# no heading [no](link)\n```\n"
    )
    assert links(page) == [("a.md", "b"), ("img/x.png", "")]
    assert anchors(page) == {"a-month-closed"}


def test_every_page_is_found_from_the_readme() -> None:
    named = {(ROOT / path).resolve() for path, _ in links(ROOT / "README.md")}
    assert [page.name for page in PAGES if page.resolve() not in named and page.name != "README.md"] == []


def options(command: str) -> set[str]:
    """The arguments and options of its own that a command takes, as its help names them."""
    instance = load_command_class("portal.ops", command)
    long = _long_options(instance)
    if command in commands_of_django():
        long -= _long_options(load_command_class("django.core", command))
    return long - {"--help", "--json"}


def commands_of_django() -> list[str]:
    names: list[str] = find_commands(str(Path(django.core.management.__file__).parent))
    return names


def _long_options(command: BaseCommand) -> set[str]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)  # type: ignore[arg-type]  # Django's parser is one of these
    return {name for action in parser._actions for name in action.option_strings if name.startswith("--")}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented_with_its_options(command: str) -> None:
    """What answers programs has its section for them; anything else is at least explained to operators."""
    answers = issubclass(import_module(f"portal.ops.management.commands.{command}").Command, OperatorCommand)
    text = "\n".join(page.read_text() for page in PAGES)
    if answers:
        text = (DOCS / "reference" / "commands.md").read_text()
        section = re.search(rf"^### {command}$\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
        assert section, f"docs/reference/commands.md has no section on {command}"
        text = section[1]
    assert command in text
    assert {name for name in options(command) if name not in text} == set()


def test_every_command_of_the_integrators_page_exists() -> None:
    sections = re.findall(r"^### (\w+)$", (DOCS / "reference/commands.md").read_text(), re.MULTILINE)
    assert [name for name in sections if name not in COMMANDS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_could_be_typed(page: Path) -> None:
    commands = {"demo", "test", "check", "bench", "lock", "audit", "pin", "migration", "release"} | {
        f"manage {name}" for name in get_commands()
    }
    typed = re.findall(r"\./run (manage \w+|\w+)", page.read_text())
    assert [
        name
        for name in typed
        if name not in commands | {"manage", "manage COMMAND", "manage help", "COMMAND"}
    ] == []
