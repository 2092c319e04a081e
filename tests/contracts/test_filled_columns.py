"""What each source fills, by recorded answers of real ones: a price that selects by what nobody fills bills in full.

The table of docs/reference/sources.md is the one that is held here.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import fields

from billing.models.plans import SELECTORS
from clusters.connectors.base import UsageFact
from clusters.connectors.prometheus import Preset, Scope, Utilisation
from portal.env import ROOT
from tests.contracts.prometheus_reading import HOUR, connector, read_all
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.contracts.sacct_exports import read_export, shared
from tests.contracts.slurm_recorded import VERSIONS, now_of, of, serving
from tests.contracts.slurm_recorded import connector as slurm_connector
from tests.integration.prom_lab import Lab

SLURM, FILES, KUBERNETES = "Slurm over slurmrestd", "sacct files", "Kubernetes over Prometheus"
OF_NO_FACT = {"cluster", "use", "dimension"}
"""Selectors: the cluster's own name, seconds that telemetry tells apart, and parts of sums that are pushed."""
OF_SUMS = {"meter", "quantity", "energy"}
"""Columns that sums of a declared meter alone fill, and what becomes such a sum: no recorded answer has energy."""
DEFAULTS = {
    column.name: column.default
    for column in fields(UsageFact)
    if not column.required and column.name not in OF_SUMS
} | {
    "source_key": "",
    "account": "",
}
story = Stories()


def documented() -> dict[str, dict[str, bool]]:
    """By column of a fact, whether each source fills it."""
    page = (ROOT / "docs" / "reference/sources.md").read_text()
    table = page.partition("### What each source fills\n")[2].partition("\n#")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line[:1] == "|"
    ]
    head, _, *body = rows
    assert head[1:] == [SLURM, FILES, KUBERNETES]
    assert {cell for row in body for cell in row[1:]} == {"yes", "no"}
    return {
        row[0].strip("`"): {source: cell == "yes" for source, cell in zip(head[1:], row[1:], strict=True)}
        for row in body
    }


def filled(facts: Iterable[UsageFact]) -> set[str]:
    return {name for fact in facts for name, default in DEFAULTS.items() if getattr(fact, name) != default}


def expected(source: str) -> set[str]:
    return {column for column, sources in documented().items() if sources[source]}


def test_each_column_has_its_row_and_a_source_that_fills_it() -> None:
    table = documented()
    assert set(table) == set(DEFAULTS)
    assert [column for column, sources in table.items() if not any(sources.values())] == []


def test_each_selector_of_a_price_is_filled_by_a_live_source() -> None:
    table = documented()
    for selector in SELECTORS.keys() - OF_NO_FACT:
        assert table[selector][SLURM] or table[selector][KUBERNETES], selector


def test_what_recorded_answers_of_slurmrestd_fill() -> None:
    columns: set[str] = set()
    for version in VERSIONS:
        slurm = of(version)
        with serving(slurm) as address:
            now = now_of(slurm)
            rows = slurm_connector(address, now=now).usage(since=now - 7200, until=now, open_keys=())
            columns |= filled(row for row in rows if isinstance(row, UsageFact))
    assert columns == expected(SLURM)


def test_what_recorded_files_of_sacct_fill() -> None:
    names = (
        "supercloud_2021-01_2021-03",
        "ubccr_pozidriv_2016-12",
        "fau_alex_fritz_2023-02",
        "philly_asof_2017-11-01",
    )
    facts = [fact for name in names for fact in read_export(shared(f"slurm/{name}.sacct.gz")).facts]
    assert filled(facts) == expected(FILES)


@story
def _classes(worlds: Worlds) -> None:
    """Series as kube-state-metrics writes them."""
    world = worlds.new("classes")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    world.pod("spot", since=100, created=40, priority_class="preemptible", qos_class="Burstable")
    world.pod(
        "short", since=100, until=2000, created=90, priority_class="preemptible", qos_class="Guaranteed"
    )
    world.pod("plain", since=100)
    asked = {
        "namespace": "team",
        "pod": "plain",
        "uid": world.uid("plain"),
        "container": "main",
        "node": "n-1",
    }
    memory = {**asked, "resource": "memory", "unit": "byte"}
    world.series("kube_pod_container_resource_requests", memory, [(100, None, 1 << 30)])


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def _classed(worlds: Worlds) -> dict[str, UsageFact]:
    source = connector(worlds.url, matcher='cluster="classes"', utilisation=Utilisation(scope=Scope.OFF))
    rows = source.usage(since=worlds.begin, until=worlds.begin + World.LENGTH - 600, open_keys=())
    return {row.name: row for row in rows if isinstance(row, UsageFact)}


@pytest.mark.sample
def test_a_pods_classes_and_creation_are_read_also_once_it_has_gone(worlds: Worlds) -> None:
    facts, begin = _classed(worlds), worlds.begin
    assert {
        name: (fact.priority_class, fact.qos, fact.submitted - begin if fact.submitted else None)
        for name, fact in facts.items()
    } == {
        "spot": ("preemptible", "Burstable", 40),
        "short": ("preemptible", "Guaranteed", 90),
        "plain": ("", "", None),
    }
    assert facts["short"].ended is not None


def test_what_a_real_prometheus_fills(worlds: Worlds, pushed_lab: Lab) -> None:
    lab = pushed_lab
    facts, busy, _ = read_all(lab.url, lab.base + 24 * HOUR, lab.base + 34 * HOUR)
    users, _, _ = read_all(lab.url, lab.base, lab.base + 24 * HOUR, preset=Preset.NETDATA)
    assert filled([*facts, *users, *_classed(worlds).values()]) == expected(KUBERNETES)
    assert any(hour.covered for hour in busy)  # by which `use` tells seconds apart
