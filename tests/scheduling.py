"""Which tests follow each other in one process, and in which order: the file's, or all that share a costly peer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

from portal.env import ROOT

SLURM, PROMETHEUS = "slurm", "prometheus"
OF_LABS = {"slurm_lab": SLURM, "every_slurm": SLURM, "pushed_lab": PROMETHEUS, "prom_lab": PROMETHEUS}

# The groups that take longest first, so that no process waits at the end for one of them. Whatever is not named
# follows in the order of its tests' number.
LONGEST: tuple[str, ...] = (SLURM, PROMETHEUS)
FEW = 20  # tests; what is less than that of a lab comes last, when the lab, which begins with the run, is up long since
ALL_JOBS = (
    "_sums.py"  # compares all that ran in a lab that has rested; so, among few, before those who add jobs
)


def group(nodeid: str) -> str:
    """The name of what runs in one process: the lab that a file uses, else the file."""
    path, _, test = nodeid.partition("::")
    lab = _lab_of(path)
    if lab == SLURM and (suite := _suite_of(test)):
        return f"{SLURM} {suite}"
    return lab or path


@cache
def _lab_of(path: str) -> str:
    """A fixture stands by its name in the file that uses it."""
    try:
        text = (ROOT / path).read_text(encoding="utf-8")
    except OSError:
        return ""
    return next((lab for fixture, lab in OF_LABS.items() if fixture in text), "")


def _suite_of(test: str) -> str:
    from tests.integration.slurm_lab import suites

    words = test.partition("[")[2].rstrip("]").split("-")
    return next((suite for suite in suites() if suite and suite in words), "")


def slurms(nodeids: Iterable[str]) -> set[str]:
    """The suites of Debian whose Slurm these tests need; "" is this machine's own."""
    names = [group(nodeid).split() for nodeid in nodeids]
    return {words[1] if words[1:] else "" for words in names if words[0] == SLURM}


def order(items: list[pytest.Item]) -> None:
    """Whole groups, the longest first; within one file the tests stay as they are."""
    sizes: dict[str, int] = {}
    for item in items:
        name = group(item.nodeid)
        sizes[name] = sizes.get(name, 0) + 1

    def rank(item: pytest.Item) -> tuple[int, int, str, bool, str]:
        name, path = group(item.nodeid), item.nodeid.partition("::")[0]
        if name.split()[0] in LONGEST and sizes[name] < FEW:
            return len(LONGEST) + 1, -sizes[name], name, ALL_JOBS not in item.nodeid, path
        first = LONGEST.index(name) if name in LONGEST else len(LONGEST)
        return first, -sizes[name], name, False, path

    items.sort(key=rank)


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process whole groups, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """A test whose process died has failed, and does not kill the next process."""
        units = self.assigned_work[node]
        pending = [(unit, test) for unit in units.values() for test, done in unit.items() if not done]
        if not pending:
            return super().remove_node(node)  # type: ignore[no-any-return]
        unit, crashed = pending[0]
        unit[crashed] = True
        super().remove_node(node)
        return str(crashed)


def slowest(reports: Sequence[Any], most: int = 10) -> list[tuple[float, str]]:
    """Seconds of set-up, call and tear-down together, and the test."""
    sums: dict[str, float] = {}
    for report in reports:
        if isinstance(report, pytest.TestReport):
            sums[report.nodeid] = sums.get(report.nodeid, 0) + report.duration
    return sorted(((seconds, test) for test, seconds in sums.items()), reverse=True)[:most]
