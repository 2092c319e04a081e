"""Which test runs when: by default, with `--peers`, with `--long`.

What a test uses decides, not a list of names. By default all runs that needs nothing but a database: every rule, every
story, every page; and the sample of each kind against each real peer. What starts other programs (a scheduler, a
server, a browser, a process of ours that is killed) waits for `--peers`, what takes many seeds or minutes for `--long`.
The tiers do not include each other; samples run by default and with `--peers`.
"""

from __future__ import annotations

import os
from pathlib import PurePath

import pytest

LONG = os.environ.get("CLUSTERTAB_LONG") == "1"
DEFAULT, PEERS, SWEEPS = "default", "peers", "long"

MARKERS = (
    "peers: starts other programs, or takes long; runs with ./run test --peers",
    "long: many seeds, or minutes; runs with ./run test --long only",
    "larger: runs in its tier, and with ./run test --long once more, with more of it",
    "sample: the story of its kind against a real peer that runs by default too",
    "one_attempt: kills or races though its name does not say so; CI gives it no second attempt",
)

PEERS_OF_TESTS = {"slurm_lab", "every_slurm", "prom_lab", "pushed_lab", "live_server"}
"""Fixtures; a server of pages is there for a browser."""
ALL_OF_IT = ("tests/integration/",)
OURS_ALONE = ("test_outbox.py", "test_pull_workers.py")  # of these folders: threads and a database
BROWSER = "_in_a_browser.py"


def of(item: pytest.Item) -> set[str]:
    """The tiers in which the test runs."""
    if item.get_closest_marker(SWEEPS):
        return {SWEEPS}
    if _params(item).get("every_slurm"):
        return {PEERS}  # by default the version that is installed will do
    tiers = {PEERS} if _starts_programs(item) else {DEFAULT}
    if item.get_closest_marker("sample"):
        tiers |= {DEFAULT, PEERS}
    if item.get_closest_marker("larger") or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        tiers.add(SWEEPS)
    return tiers


def _params(item: pytest.Item) -> dict[str, object]:
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def _starts_programs(item: pytest.Item) -> bool:
    path = PurePath(item.nodeid.partition("::")[0])
    if item.get_closest_marker(PEERS) or path.name.endswith(BROWSER):
        return True
    if PEERS_OF_TESTS & set(getattr(item, "fixturenames", ())):
        return True
    return str(path).startswith(ALL_OF_IT) and path.name not in OURS_ALONE


def chosen(config: pytest.Config) -> set[str]:
    """The tiers that were asked for."""
    flags = {tier for tier in (PEERS, SWEEPS) if config.getoption(tier)}
    return flags or {DEFAULT}


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is in no tier that was asked for. A file that is named runs without its sweeps, a test as it is."""
    tiers = chosen(config)
    files, tests = _named(config)
    selected: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        runs_in = of(item)
        name = item.nodeid
        by_name = name.startswith(tests) if tests else False
        if files and name.startswith(files) and runs_in != {SWEEPS}:
            by_name = True
        (selected if by_name or runs_in & tiers else deselected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected


def _named(config: pytest.Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files and the tests that the command line names."""
    root = f"{config.rootpath}/"
    words = [str(word).removeprefix(root).removeprefix("./") for word in config.args]
    paths = [word for word in words if word.partition("::")[0].endswith(".py")]
    return (
        tuple(f"{word}::" for word in paths if "::" not in word),
        tuple(word for word in paths if "::" in word),
    )


def examples(few: int, many: int) -> int:
    """How many examples a property has: few in its tier, many with `--long`."""
    return many if LONG else few


def seeds(numbers: range, *, short: int) -> list[object]:
    """Parameters of which the first run in the test's own tier, and all others with `--long`."""
    return [*numbers[:short], *(pytest.param(seed, marks=pytest.mark.long) for seed in numbers[short:])]
