"""What exporters of DCGM do beside the rule: each alone in a small cluster, in a real Prometheus."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from clusters.connectors.base import BusyHour, BusySource, ConnectorError, UsageFact
from clusters.connectors.http import Endpoint, Http
from clusters.connectors.prometheus import PrometheusConnector, Scope, Utilisation
from tests.contracts.prometheus_reading import HOUR, connector, read_all, through
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.fakes.prometheus import Reply, Request, StandIn, error
from tests.integration.prom_lab import Lab

H100 = "NVIDIA-H100-80GB-HBM3"
ENGINE, GPU_UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
BLANK = 9223372036854775794.0  # what exporters once wrote for a value that they did not have
NAN = float("nan")
story = Stories()


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def _cluster(worlds: Worlds, name: str) -> World:
    world = worlds.new(name)
    world.node("n-1", product=H100)
    return world


def _busy(
    worlds: Worlds, name: str, since: int = 0, url: str = "", **options: Any
) -> tuple[dict[str, BusyHour], PrometheusConnector]:
    """The first hour by the pod's name and container, and the connector after its pass."""
    begin = worlds.begin
    arguments = {"matcher": f'cluster="{name}"', **options}
    _, rows, source = read_all(url or worlds.url, begin + since, begin + World.LENGTH - 600, **arguments)
    assert {row.hour for row in rows} <= {begin}
    return {"/".join(row.source_key.removeprefix(f"{name}-").split("/")[:2]): row for row in rows}, source


def _part(row: BusyHour) -> Decimal:
    return row.busy / row.covered


@story
def _old_names(worlds: Worlds) -> None:
    world = _cluster(worlds, "old-names")
    world.pod("trains")
    world.dcgm(
        [(0, None, 0.25)], pod_namespace="team", pod_name="trains", container_name="main", uuid="GPU-1"
    )
    world.dcgm([(0, None, 0.75)], gpu=1)  # of nobody


def test_labels_as_they_once_were_are_found(worlds: Worlds) -> None:
    busy, source = _busy(worlds, "old-names")
    assert (busy["trains/main"].busy, busy["trains/main"].covered) == (Decimal(900), HOUR)
    assert busy["trains/main"].source is BusySource.DEVICE
    assert source.reading.notes == []


@story
def _restarted_pod(worlds: Worlds) -> None:
    world = _cluster(worlds, "one-name")
    for uid, since, until in (("first", 0, 1200), ("second", 1230, 2400), ("third", 2430, None)):
        world.pod("db-0", since=since, until=until, uid=uid)
    world.dcgm([(0, 1200, 0.2), (1230, 2400, 0.4), (2430, None, 0.8)], holder="db-0")


def test_pods_of_one_name_are_told_apart_by_time_where_no_uid_is_told(worlds: Worlds) -> None:
    busy, _ = _busy(worlds, "one-name")
    assert {key: _part(row) for key, row in busy.items()} == {
        "first/main": Decimal("0.2"),
        "second/main": Decimal("0.4"),
        "third/main": Decimal("0.8"),
    }
    for key, seconds in (("first/main", 1200), ("second/main", 1170), ("third/main", 1170)):
        assert seconds - 60 <= busy[key].covered <= seconds


@story
def _no_samples(worlds: Worlds) -> None:
    world = _cluster(worlds, "blanks")
    world.pod("trains")
    world.dcgm([(0, 600, BLANK), (600, 900, NAN), (900, 1200, 3.0), (1200, None, 0.5)], holder="trains")
    world.pod("clean")
    world.dcgm([(0, None, 0.5)], holder="clean", gpu=1)


def test_samples_that_are_none_do_not_count_and_are_counted(worlds: Worlds) -> None:
    busy, source = _busy(worlds, "blanks")
    assert (busy["trains/main"].busy, busy["trains/main"].covered) == (Decimal(1200), 2400)
    assert (busy["clean/main"].busy, busy["clean/main"].covered) == (Decimal(1800), HOUR)
    assert source.reading.notes == [
        (
            f"40 samples of {ENGINE} were blank or above 1.5, and do not count. If it is a percentage here, set the "
            "option utilisation.divisor to 100."
        )
    ]


@story
def _percent_by_a_wrong_name(worlds: Worlds) -> None:
    world = _cluster(worlds, "ratio-by-name")
    world.pod("trains")
    world.dcgm(
        [(0, 1800, 40.0), (1800, 1860, 101.0), (1860, None, 60.0)],
        holder="trains",
        metric="DCGM_FI_DEV_GPU_UTIL_RATIO",
    )


def test_a_percentage_whose_name_says_ratio_is_one(worlds: Worlds) -> None:
    busy, source = _busy(worlds, "ratio-by-name")
    row = busy["trains/main"]
    assert (row.metric, row.covered) == ("DCGM_FI_DEV_GPU_UTIL_RATIO", 3540)
    assert Decimal("0.49") < _part(row) < Decimal("0.50")
    assert source.reading.notes == [
        "2 samples of DCGM_FI_DEV_GPU_UTIL_RATIO were blank or above 100, and do not count."
    ]


@story
def _ratio_read_as_percent(worlds: Worlds) -> None:
    world = _cluster(worlds, "misread")
    world.pod("trains")
    world.dcgm([(0, None, 0.7)], holder="trains", metric=GPU_UTIL)
    idle = _cluster(worlds, "idle")
    idle.pod("trains")
    idle.dcgm([(0, None, 0.0)], holder="trains", metric=GPU_UTIL)


def test_a_percentage_that_never_passes_what_a_ratio_reaches_is_doubted(worlds: Worlds) -> None:
    busy, source = _busy(worlds, "misread")
    assert _part(busy["trains/main"]) == Decimal("0.007")
    (note,) = source.reading.notes
    assert note.startswith(
        f"{GPU_UTIL} never passed 1.5 while devices were held, though it is read as a percentage"
    )
    right, source = _busy(worlds, "misread", utilisation=Utilisation(divisor=Decimal(1)))
    assert _part(right["trains/main"]) == Decimal("0.7")
    assert source.reading.notes == []
    busy, source = _busy(worlds, "idle")
    assert (busy["trains/main"].busy, source.reading.notes) == (Decimal(0), [])


@story
def _double_scrape(worlds: Worlds) -> None:
    world = _cluster(worlds, "twice")
    world.pod("trains")
    for job in ("dcgm-a", "dcgm-b"):  # both were down for the second half of the hour
        world.dcgm([(0, 1800, 0.5), (3600, None, 0.5)], holder="trains", job=job)
    world.pod("rolled")
    world.dcgm([(0, 1800, 0.3)], holder="rolled", gpu=1, instance="10.0.0.1:9400")
    moved = {"instance": "10.0.0.2:9400", "pod": "dcgm-exporter-y"}
    world.dcgm([(1800, None, 0.6)], holder="rolled", gpu=1, **moved)


def test_two_who_scrape_one_device_cover_no_more_than_one_and_a_rollout_goes_on(worlds: Worlds) -> None:
    busy, _ = _busy(worlds, "twice")
    assert (_part(busy["trains/main"]), busy["trains/main"].covered) == (Decimal("0.5"), 1800)
    assert (_part(busy["rolled/main"]), busy["rolled/main"].covered) == (Decimal("0.45"), HOUR)


@story
def _containers(worlds: Worlds) -> None:
    world = _cluster(worlds, "containers")
    world.pod("pair", containers=("left", "right"))
    world.dcgm([(0, None, 0.1)], holder="pair", exported_container="left")
    world.dcgm([(0, None, 0.9)], holder="pair", gpu=1, exported_container="right")


def test_each_container_has_its_own_devices(worlds: Worlds) -> None:
    busy, _ = _busy(worlds, "containers")
    assert {key: _part(row) for key, row in busy.items()} == {
        "pair/left": Decimal("0.1"),
        "pair/right": Decimal("0.9"),
    }


@story
def _slices(worlds: Worlds) -> None:
    world = _cluster(worlds, "slices")
    world.pod("cut", resource="nvidia_com_mig_1g_10gb")
    world.dcgm([(0, None, 90.0)], holder="cut", metric=GPU_UTIL)  # of the GPU that the slice is of
    world.dcgm([(0, None, 0.3)], holder="cut", GPU_I_ID="9", GPU_I_PROFILE="1g.10gb")
    whole = _cluster(worlds, "whole-only")
    whole.pod("cut", resource="nvidia_com_mig_1g_10gb")
    whole.dcgm([(0, None, 90.0)], holder="cut", metric=GPU_UTIL)


def test_a_slice_is_never_told_of_by_its_gpu(worlds: Worlds) -> None:
    busy, _ = _busy(worlds, "slices")
    assert (_part(busy["cut/main"]), busy["cut/main"].metric) == (Decimal("0.3"), ENGINE)
    busy, _ = _busy(worlds, "whole-only")
    assert busy == {}


@story
def _two_kinds(worlds: Worlds) -> None:
    world = _cluster(worlds, "two-kinds")
    world.node("n-2", product="NVIDIA-GeForce-RTX-4090")
    world.pod("large")
    world.pod("small", node="n-2")
    world.dcgm([(0, None, 0.5)], holder="large")
    world.dcgm([(0, None, 99.0)], holder="large", metric=GPU_UTIL)
    world.dcgm([(0, None, 80.0)], holder="small", gpu=1, metric=GPU_UTIL)


def test_a_node_without_the_better_metric_is_told_of_by_the_next(worlds: Worlds) -> None:
    busy, _ = _busy(worlds, "two-kinds")
    assert {key: (_part(row), row.metric) for key, row in busy.items()} == {
        "large/main": (Decimal("0.5"), ENGINE),
        "small/main": (Decimal("0.8"), GPU_UTIL),
    }


@story
def _without(worlds: Worlds) -> None:
    _cluster(worlds, "no-dcgm").pod("trains")


def test_without_dcgm_bills_go_on_and_use_is_unknown(worlds: Worlds) -> None:
    begin = worlds.begin
    facts, rows, source = read_all(worlds.url, begin, begin + 6600, matcher='cluster="no-dcgm"')
    assert [fact.name for fact in facts] == ["trains"]
    assert rows == []
    assert source.reading.complete_through == begin + 6600
    (note,) = source.reading.notes
    assert (
        "has no metric of DCGM that tells how busy devices are, so that the use of 1 pod is unknown" in note
    )
    assert "set the option utilisation.scope to off" in note


@story
def _apart(worlds: Worlds) -> None:
    _cluster(worlds, "apart").pod("trains")
    worlds.new("apart-exporters").dcgm([(0, None, 0.5)], holder="trains")


def test_the_exporters_may_have_a_matcher_of_their_own(worlds: Worlds) -> None:
    assert _busy(worlds, "apart")[0] == {}
    own = Utilisation(matcher='cluster="apart-exporters"')
    assert _part(_busy(worlds, "apart", utilisation=own)[0]["trains/main"]) == Decimal("0.5")


@story
def _above_one(worlds: Worlds) -> None:
    world = _cluster(worlds, "above-one")
    world.pod("trains")
    world.dcgm([(0, None, 1.02)], holder="trains")
    world.series("gpu_busy", {"exported_namespace": "team", "exported_pod": "trains"}, [(0, None, 128)])


def test_nothing_works_longer_than_it_is_there(worlds: Worlds) -> None:
    busy, source = _busy(worlds, "above-one")
    assert (busy["trains/main"].busy, source.reading.notes) == (Decimal(HOUR), [])


def test_a_metric_of_ones_own_counts_by_its_divisor(worlds: Worlds) -> None:
    own = Utilisation(metric="gpu_busy", divisor=Decimal(256))
    busy, _ = _busy(worlds, "above-one", utilisation=own)
    assert (busy["trains/main"].busy, busy["trains/main"].metric) == (Decimal(1800), "gpu_busy")


@story
def _early(worlds: Worlds) -> None:
    world = _cluster(worlds, "early")
    world.pod("went", until=1200, phases=[(0, 1000, "Running"), (1000, None, "Succeeded")], completed=1000)
    world.dcgm([(0, 1000, 0.5)], holder="went")


def test_an_hour_is_told_whole_by_the_pass_that_sees_its_end(worlds: Worlds) -> None:
    whole, _ = _busy(worlds, "early")
    begin = worlds.begin
    facts, rows, _ = read_all(worlds.url, begin + 3000, begin + 6600, matcher='cluster="early"')
    assert facts == []  # it ended before, as the pass before this one told
    assert rows == list(whole.values())
    assert rows[0].busy == Decimal(500)
    facts, rows, _ = read_all(worlds.url, begin, begin + 3000, matcher='cluster="early"')
    assert (len(facts), rows) == (1, [])  # its hour has not ended


def _through(
    worlds: Worlds, answer: Callable[[Request, Reply], Reply]
) -> tuple[list[Any], PrometheusConnector]:
    """Rows of a pass over a server that answers as the real one does, but for what `answer` makes of it."""
    with (
        Http(Endpoint(base_url=worlds.url)) as real,
        StandIn(
            lambda request: answer(request, through(real, request)), now=worlds.begin + World.LENGTH
        ) as url,
    ):
        source = connector(url.url, matcher='cluster="twice"')
        return list(source.usage(since=worlds.begin, until=worlds.begin + 6600, open_keys=())), source


def test_a_warning_beside_utilisation_leaves_the_whole_pass_unproved(worlds: Worlds) -> None:
    def warned(request: Request, response: Reply) -> Reply:
        if "sum_over_time(DCGM" not in request.query:
            return response
        return Reply(
            response.status,
            json.dumps(json.loads(response.body) | {"warnings": ["a store is away"]}).encode(),
        )

    with pytest.raises(ConnectorError, match="a store is away") as refused:
        _through(worlds, warned)
    assert refused.value.retry


def test_hours_that_are_too_much_at_once_are_read_in_fewer(pushed_lab: Lab) -> None:
    since, until = pushed_lab.base + 30 * HOUR, pushed_lab.base + 40 * HOUR
    _, whole, _ = read_all(pushed_lab.url, since, until)

    def answer(request: Request) -> Reply:
        if request.what == "query_range" and "DCGM" in request.query:
            begin, end = int(request.form["start"][0]), int(request.form["end"][0])
            if end - begin >= 2 * HOUR:
                return error(422, "execution", "query processing would load too many samples into memory")
        return through(real, request)

    with Http(Endpoint(base_url=pushed_lab.url)) as real, StandIn(answer, now=until + 700) as prometheus:
        _, cut, _ = read_all(prometheus.url, since, until)
    assert cut == whole
    assert whole


def test_facts_come_before_what_is_said_of_them(worlds: Worlds) -> None:
    rows, source = _through(worlds, lambda request, reply: reply)
    kinds = [type(row) for row in rows]
    assert kinds == [UsageFact, UsageFact, BusyHour, BusyHour]
    assert source.reading.complete_through == worlds.begin + 6600


def test_off_asks_nothing_of_dcgm(worlds: Worlds) -> None:
    queries: list[str] = []
    with Http(Endpoint(base_url=worlds.url)) as real:

        def answer(request: Request) -> Reply:
            queries.append(request.query)
            return through(real, request)

        with StandIn(answer, now=worlds.begin + World.LENGTH) as prometheus:
            off = Utilisation(scope=Scope.OFF)
            assert _busy(worlds, "twice", url=prometheus.url, utilisation=off)[0] == {}
    assert queries
    assert not [query for query in queries if "DCGM" in query]
