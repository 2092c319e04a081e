"""kube-state-metrics in two: as shards, of which one is away for a while, and as replicas, of which one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from clusters.connectors.base import UsageFact
from clusters.connectors.prometheus import PrometheusConnector, Scope, Utilisation
from tests.contracts.prometheus_reading import connector, present
from tests.contracts.prometheus_worlds import World, Worlds
from tests.integration.prom_lab import Lab

AWAY = (2400, 3900)  # seconds since the beginning
Facts = dict[str, UsageFact]


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    world_set = Worlds(pushed_lab)
    for job in ("shards", "replicas"):
        for number, down in enumerate(([], [AWAY])):
            one = world_set.new(f"{job}@{number}", down=down, job=job, cluster=job)
            one.node("n-1", product="NVIDIA-H100-80GB-HBM3")
            if job == "shards":
                one.pod(f"stays-{number}")
                one.pod(f"goes-{number}", until=3000)
            else:
                one.pod("stays")
                one.pod("goes", until=3000)
    world_set.push()
    return world_set


def _read(
    worlds: Worlds, job: str, *, since: int = 0, until: int, open_keys: Sequence[str] = (), url: str = ""
) -> tuple[Facts, PrometheusConnector]:
    arguments: dict[str, Any] = {"matcher": f'job="{job}"', "utilisation": Utilisation(scope=Scope.OFF)}
    source = connector(url or worlds.url, **arguments)
    rows = source.usage(since=worlds.begin + since, until=worlds.begin + until, open_keys=open_keys)
    facts = {row.name: row for row in rows if isinstance(row, UsageFact)}
    return facts, source


def _missing(source: PrometheusConnector) -> list[int]:
    return [hour.read - hour.covered for hour in source.reading.incomplete]


def test_while_one_shard_is_away_its_hours_are_incomplete_and_its_pods_ends_estimated(worlds: Worlds) -> None:
    facts, source = _read(worlds, "shards", until=World.LENGTH - 600)

    # 40 to 65 min: 20 of the first hour and 5 of the second, to a scrape at either end.
    first, second = _missing(source)
    assert 1140 <= first <= 1230
    assert 270 <= second <= 330
    assert {name: fact.ended is None for name, fact in facts.items()} == {
        "stays-0": True,
        "goes-0": False,
        "stays-1": True,
        "goes-1": False,
    }
    assert facts["goes-1"].state == "Unknown (estimated end)"
    assert any("vanished while kube-state-metrics was not seen" in note for note in source.reading.notes)


def test_a_window_that_begins_while_a_shard_is_away_knows_it_too(worlds: Worlds) -> None:
    _, source = _read(worlds, "shards", since=3600, until=World.LENGTH - 600)

    (missing,) = _missing(source)
    assert 270 <= missing <= 330


@pytest.mark.parametrize(("since", "now"), [(0, 3300), (1500, 3700)])
def test_no_pod_of_a_shard_that_is_away_has_ended_yet(worlds: Worlds, since: int, now: int) -> None:
    with present(worlds.url, worlds.begin + now) as url:
        facts, source = _read(worlds, "shards", since=since, until=now - 600, url=url)

    through = source.reading.complete_through
    assert through is not None
    assert through <= worlds.begin + AWAY[0]
    assert [name for name, fact in facts.items() if name.endswith("-1") and fact.ended is not None] == []


def test_of_replicas_one_may_be_away(worlds: Worlds) -> None:
    facts, source = _read(worlds, "replicas", until=World.LENGTH - 600)

    assert _missing(source) == []
    assert facts["goes"].state == "Unknown"
    assert facts["stays"].ended is None
    assert source.reading.complete_through == worlds.begin + World.LENGTH - 600
