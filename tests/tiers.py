"""Which test runs when: by default, with `--peers`, with `--long`.

What a test uses decides, not a list of names. By default all runs that needs nothing but a database: every rule, every
story, every page; and the sample of each kind against each real peer that is quick to start. What starts other programs
(a scheduler, a server, a browser, a process of ours that is killed) waits for `--peers`, and so do, but for samples,
stories of months whose rows another engine reads from files; what takes many seeds or minutes waits for `--long`.
The tiers do not include each other; samples run by default and with `--peers`. A sweep that takes many seconds is
`swept`: it runs in both, by default in a short form.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

import pytest

LONG = os.environ.get("CLUSTERTAB_LONG") == "1"
DEFAULT, PEERS, SWEEPS = "default", "peers", "long"


@dataclass
class Run:
    """`whole`: what is swept runs whole. Said before the tests are collected."""

    whole: bool = LONG


RUN = Run()

MARKERS = (
    "peers: starts other programs, or takes long; runs with ./run test --peers",
    "long: many seeds, or minutes; runs with ./run test --long only",
    "larger: runs in its tier, and with ./run test --long once more, with more of it",
    "swept: by default a short form of it runs, and all of it with ./run test --peers",
    "sample: the story of its kind against a real peer that runs by default too",
    "one_attempt: kills or races though its name does not say so; CI gives it no second attempt",
)

PEERS_OF_TESTS = {"slurm_lab", "every_slurm", "prom_lab", "pushed_lab", "live_server"}
"""Fixtures; a server of pages is there for a browser."""
ALL_OF_IT = ("tests/integration/",)
OURS_ALONE = ("test_outbox.py", "test_pull_workers.py")  # of these folders: threads and a database
BROWSER = "_in_a_browser.py"
FROM_FILES = (
    *("test_dropped_months", "test_sealed_months.py", "test_unsealed_months"),
    *("test_late_records", "test_late_pods"),
)
"""Files of months, which DuckDB writes and reads."""


def of(item: pytest.Item) -> set[str]:
    """The tiers in which the test runs."""
    if item.get_closest_marker(SWEEPS):
        return {SWEEPS}
    if _params(item).get("every_slurm"):
        return {PEERS}  # by default the version that is installed will do
    tiers = {PEERS} if _starts_programs(item) else {DEFAULT}
    if item.get_closest_marker("sample") or item.get_closest_marker("swept"):
        tiers |= {DEFAULT, PEERS}
    if item.get_closest_marker("larger") or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        tiers.add(SWEEPS)
    return tiers


def _params(item: pytest.Item) -> dict[str, object]:
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def _starts_programs(item: pytest.Item) -> bool:
    path = PurePath(item.nodeid.partition("::")[0])
    if item.get_closest_marker(PEERS) or path.name.endswith(BROWSER) or path.name.startswith(FROM_FILES):
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


def examples(few: int, many: int, *, short: int | None = None) -> int:
    """How many examples a property has: few in its tier, many with `--long`; by default `short`, if it is `swept`."""
    if LONG:
        return many
    return few if short is None else whole_or(short, few)


def whole_or(short: int, whole: int) -> int:
    """A number that a test which is `swept` goes by: `short` by default, `whole` with `--peers` and `--long`."""
    return whole if RUN.whole else short


def strides(units: int) -> list[int]:
    """Days, hours or minutes that go by in a story that is `swept`, one by one; by default three at once of many."""
    step = whole_or(3, 1) if units > 7 else 1
    whole, rest = divmod(units, step)
    return [step] * whole + [1] * rest


def thinned(cases: Iterable[object], *, every: int) -> list[object]:
    """Parameters of which one in so many runs in the test's own tier, and all others with `--peers`."""
    return [
        case if not place % every else pytest.param(*_parts(case), marks=pytest.mark.peers)
        for place, case in enumerate(cases)
    ]


def _parts(case: object) -> tuple[object, ...]:
    return case if isinstance(case, tuple) else (case,)


def seeds(numbers: range, *, short: int) -> list[object]:
    """Parameters of which the first run in the test's own tier, and all others with `--long`."""
    return [*numbers[:short], *(pytest.param(seed, marks=pytest.mark.long) for seed in numbers[short:])]
