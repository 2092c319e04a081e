"""Machines without a scheduler: what netdata and Genv say that each user held, hour by hour, to the second."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.connectors.base import BadRow, ConnectorError, IncompleteHour, Row, UsageFact
from clusters.connectors.prometheus import Preset
from tests.contracts.prometheus_reading import HOUR, connector, present, read
from tests.contracts.prometheus_worlds import World, Worlds
from tests.fakes.prometheus import Reply, Request, StandIn, success
from tests.integration.prom_lab import Lab
from tests.tiers import examples

NETDATA: dict[str, Any] = {"preset": Preset.NETDATA, "models": {"hf-a6000-1": "a6000"}}
GAUGE = "netdata_nvidia_smi_user_mem_MiB_average"
BEGIN = 1_740_700_800  # 2025-02-28 00:00 UTC
STEP = 30


def gpu_seconds(facts: Iterable[Row]) -> dict[tuple[str, str], Fraction]:
    """GiB-hours of GPU memory by user and host."""
    sums: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for fact in facts:
        assert isinstance(fact, UsageFact)
        assert fact.started is not None
        assert fact.ended is not None
        seconds = fact.ended - fact.started - fact.suspended
        sums[fact.user, fact.queue] += Fraction(seconds * fact.gpu_memory_mib, 1024 * HOUR)
    return dict(sums)


def test_the_labs_users_held_what_they_really_held_to_the_mib_second(prom_lab: Lab) -> None:
    facts, source = read(prom_lab.url, prom_lab.base, prom_lab.end, **NETDATA)

    assert gpu_seconds(facts) == {
        (user, host): Fraction(mib * (until - since), 1024 * HOUR)
        for user, host, mib, since, until in prom_lab.truth["user_memory"]
    }
    assert (
        gpu_seconds(facts)["alice", "hf-3090-1"] == 240
    )  # 24 GiB for ten hours, never 61 minutes to the hour
    assert gpu_seconds(facts)["bob", "hf-3090-1"] == 16
    assert gpu_seconds(facts)["bob", "hf-a6000-1"] == 120
    assert len(facts) == 15  # one a host, user and hour
    (first,) = [fact for fact in facts if fact.source_key == "hf-a6000-1/bob/2025-02-27T08Z"]
    assert (first.account, first.queue, first.gpu_model, first.gpu_memory_mib) == (
        "bob",
        "hf-a6000-1",
        "a6000",
        40_960,
    )
    assert (first.gpus, first.ended, first.state) == (0, (first.started or 0) + HOUR, "SAMPLED")
    assert source.reading.complete_through == prom_lab.end - HOUR  # its last hour may still be told of
    assert source.reading.nodes is None


def test_an_outage_of_the_server_is_an_incomplete_hour_and_nobodys_use(prom_lab: Lab) -> None:
    _, source = read(prom_lab.url, prom_lab.base, prom_lab.end, **NETDATA)

    (down,) = prom_lab.truth["server_down"]
    before, after, outage = source.reading.incomplete
    assert (before.begins, before.covered) == (prom_lab.base, 0)  # nobody looked before the third hour
    assert (after.begins, after.covered) == (prom_lab.base + HOUR, 0)
    assert outage == IncompleteHour(down[0] - down[0] % HOUR, 3600, 1200)
    (note,) = source.reading.notes
    assert note == (
        "netdata_nvidia_smi_user_mem_MiB_average was not seen for 9600 s in 3 hours from 2025-02-27 00:00 UTC on: what "
        "was held then is not known, and not billed."
    )


def test_hour_by_hour_at_random_and_again_it_is_the_same(pushed_lab: Lab) -> None:
    lab = pushed_lab
    at_once, _ = read(lab.url, lab.base, lab.base + 14 * HOUR, **NETDATA)
    source = connector(lab.url, **NETDATA)
    hours = list(range(lab.base, lab.base + 14 * HOUR, HOUR))
    ledger: dict[str, Row] = {}
    for since in [*random.Random(3).sample(hours, len(hours)), *hours]:
        for row in source.usage(since=since - 900, until=since + HOUR, open_keys=()):
            assert isinstance(row, UsageFact)
            assert ledger.setdefault(row.source_key, row) == row
    assert ledger == {fact.source_key: fact for fact in at_once}


def test_only_hours_that_have_settled_are_read(pushed_lab: Lab) -> None:
    lab = pushed_lab
    with present(lab.url, lab.base + 4 * HOUR + 599) as url:
        facts, source = read(url, lab.base, lab.base + 5 * HOUR, **NETDATA)
    assert source.reading.complete_through == lab.base + 3 * HOUR
    assert gpu_seconds(facts) == {("alice", "hf-3090-1"): 24}
    with present(lab.url, lab.base + 4 * HOUR + 600) as url:
        facts, source = read(url, lab.base, lab.base + 5 * HOUR, **NETDATA)
    assert source.reading.complete_through == lab.base + 4 * HOUR
    assert gpu_seconds(facts) == {("alice", "hf-3090-1"): 48}


def test_a_server_that_never_heard_of_it_proves_nothing(pushed_lab: Lab) -> None:
    lab = pushed_lab
    source = connector(lab.url, preset=Preset.GENV, matcher='cluster="no-such"')
    with pytest.raises(ConnectorError, match="has no genv_user_attached_devices_total since 2025-02-27"):
        list(source.usage(since=lab.base, until=lab.end, open_keys=()))
    assert source.reading.complete_through is None


def test_attached_devices_of_genv_are_gpu_hours(pushed_lab: Lab) -> None:
    worlds = Worlds(pushed_lab)
    world = worlds.new("genv", hostname="gpu-7")
    metric = "genv_user_attached_devices_total"
    world.series("genv_users_total", {}, [(0, None, 2)])
    world.series(metric, {"username": "ann"}, [(0, None, 2)])
    world.series(metric, {"username": "ben"}, [(0, 1800, 1), (1800, 3600, 4), (3600, None, 0)])
    worlds.push()

    options: dict[str, Any] = {"preset": Preset.GENV, "matcher": 'cluster="genv"'}
    facts, source = read(worlds.url, worlds.begin, worlds.begin + World.LENGTH - 600, **options)

    gpu_seconds: dict[str, int] = defaultdict(int)
    for fact in facts:
        assert fact.started is not None
        assert fact.ended is not None
        gpu_seconds[fact.account] += (fact.ended - fact.started - fact.suspended) * fact.gpus
    assert gpu_seconds == {"ann": 2 * 3600, "ben": 1800 + 4 * 1800}
    assert {fact.queue for fact in facts} == {"gpu-7"}
    assert source.reading.complete_through == worlds.begin + HOUR


@dataclass
class Gauges:
    """A Prometheus that has nothing but the samples of some series, and `up` of them: one word per query."""

    samples: dict[tuple[str, ...], dict[int, int]] = field(default_factory=dict)  # by labels: value by second
    up: dict[int, int] = field(default_factory=dict)
    now: int = BEGIN + 10 * HOUR

    def answer(self, request: Request) -> Reply:
        end, text = int(request.form["time"][0]), request.query
        match = re.search(r"(up|\w+_average|\w+_total)\{[^}]*\}\[(\d+)ms\]", text)
        assert match, text
        name, begin = match[1], end - (int(match[2]) + 1) // 1000
        series: list[tuple[dict[str, str], dict[int, int]]] = []
        if name != GAUGE:  # what stands while netdata is read
            series = [({"job": "netdata"}, self.up)]
        else:
            labels = ("hostname", "dimension", "chart", "replica")
            series = [
                ({**dict(zip(labels, key, strict=True)), "job": "netdata"}, series_labels)
                for key, series_labels in self.samples.items()
            ]
        selection = [
            (series_labels, {at: v for at, v in at_values.items() if begin < at <= end})
            for series_labels, at_values in series
        ]
        selection = [(series_labels, values) for series_labels, values in selection if values]
        if text.startswith("count"):
            by = {"job": "netdata"} if "by (job)" in text else {}
            return success([{"metric": by, "value": [end, str(len(selection))]}] if selection else [])
        return success(
            [
                {
                    "metric": series_labels,
                    "values": [[at, str(value)] for at, value in sorted(values.items())],
                }
                for series_labels, values in selection
            ],
            "matrix",
        )

    def read(self, *hours: int) -> list[Row]:
        """A pass over each of these hours, in this order."""
        rows: list[Row] = []
        with StandIn(self.answer, now=self.now) as prometheus:
            for hour in hours:
                source = connector(prometheus.url, preset=Preset.NETDATA)
                since = BEGIN + hour * HOUR
                rows += source.usage(since=since, until=since + HOUR, open_keys=())
        return rows


def gauges(*series: tuple[str, Sequence[tuple[int, int]]], replica: str = "", phase: int = 7) -> Gauges:
    """Series of Ben on one host by chart: (sample's number, MiB). Of each hour there are 120 numbers."""
    server = Gauges()
    server.up = {BEGIN + phase + number * STEP: 1 for number in range(5 * 120)}
    for chart, samples in series:
        server.samples["n1", "ben", chart, replica] = {
            BEGIN + phase + number * STEP: mib for number, mib in samples
        }
    return server


def test_what_changes_within_an_hour_is_told_in_whole_mib_seconds() -> None:
    server = gauges(("gpu0", [(number, 1000 if number < 7 else 1001) for number in range(100)]))

    main, rest = server.read(0)

    assert isinstance(main, UsageFact)
    assert isinstance(rest, UsageFact)
    assert (main.gpu_memory_mib, main.suspended, (main.ended or 0) - (main.started or 0)) == (1000, 600, 3600)
    assert rest.source_key == f"{main.source_key}/rest"
    assert (rest.gpu_memory_mib, (rest.ended or 0) - (rest.started or 0)) == (1, 93 * STEP)


def test_the_memory_of_two_gpus_adds_up_and_of_two_replicas_does_not() -> None:
    both = gauges(("gpu0", [(n, 1000) for n in range(120)]), ("gpu1", [(n, 24) for n in range(120)]))
    again = gauges(("gpu0", [(n, 1000) for n in range(120)]), replica="b", phase=22)
    both.samples |= again.samples

    assert gpu_seconds(both.read(0)) == {("ben", "n1"): 1}


def test_less_than_nothing_is_set_aside() -> None:
    (row,) = gauges(("gpu0", [(0, -1), (1, 5)])).read(0)
    assert isinstance(row, BadRow)
    assert (row.code, row.source_key) == ("negative-use", "n1/ben/2025-02-28T00Z")


numbers = st.integers(0, 359)
samples_drawn = st.dictionaries(numbers, st.integers(0, 50), max_size=60)


@settings(max_examples=examples(5, 100))
@given(
    one=samples_drawn,
    two=samples_drawn,
    late=st.sets(numbers),
    order=st.permutations([0, 1, 2, 1]),
)
def test_late_samples_and_any_order_end_in_what_the_samples_say(
    one: dict[int, int], two: dict[int, int], late: set[int], order: list[int]
) -> None:
    whole = gauges(("gpu0", sorted(one.items())), ("gpu1", sorted(two.items())))
    early = gauges(
        ("gpu0", sorted((n, mib) for n, mib in one.items() if n not in late)),
        ("gpu1", sorted((n, mib) for n, mib in two.items() if n not in late)),
    )
    ledger: dict[str, Row] = {}
    for server in (early, whole):
        for row in server.read(*order):
            assert isinstance(row, UsageFact)
            ledger[row.source_key] = row

    total = sum((*one.values(), *two.values())) * STEP
    assert sum(gpu_seconds(ledger.values()).values(), Fraction(0)) == Fraction(total, 1024 * HOUR)
