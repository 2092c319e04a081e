"""Jobs of Slurm whose DCGM exporter is told which job is on which device, in a real Prometheus."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from clusters.connectors.base import ConnectorError
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import PrometheusLogin, PrometheusOptions, Scope, Utilisation
from clusters.connectors.prometheus.connector import JobHour, JobTelemetry
from tests.contracts.prometheus_reading import HOUR, present
from tests.contracts.prometheus_worlds import Worlds
from tests.fakes.prometheus import Reply, Request, StandIn, success
from tests.integration.prom_lab import Lab

GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"


def _telemetry(url: str, **options: Any) -> JobTelemetry:
    return JobTelemetry(
        Endpoint(base_url=url), login=PrometheusLogin(), options=PrometheusOptions(**options), clock=lambda: 0
    )


def _hours(url: str, since: int, until: int, **options: Any) -> tuple[list[JobHour], JobTelemetry]:
    with _telemetry(url, **options) as telemetry:
        return list(telemetry.hours(since=since, until=until)), telemetry


def test_each_job_has_its_hours_also_where_two_share_a_gpu(pushed_lab: Lab) -> None:
    lab = pushed_lab
    rows, telemetry = _hours(lab.url, lab.base, lab.end)
    expected = {
        (job, hour) for job, _, begin, end in lab.truth["hpc_jobs"] for hour in range(begin, end, HOUR)
    }
    assert {(row.job_id, row.hour) for row in rows} == expected
    assert len(rows) == len(expected) == 9
    assert {(row.busy, row.covered, row.metric) for row in rows} == {(Decimal(2520), HOUR, GPU_UTIL)}
    assert telemetry.notes == []
    assert telemetry.complete_through == lab.end


def test_hours_at_random_are_the_same_and_only_whole_ones_are_told(pushed_lab: Lab) -> None:
    lab = pushed_lab
    whole, _ = _hours(lab.url, lab.base, lab.base + 10 * HOUR)
    hours = list(range(lab.base, lab.base + 10 * HOUR, HOUR))
    single = [
        row
        for hour in random.Random(3).sample(hours, len(hours))
        for row in _hours(lab.url, hour, hour + HOUR)[0]
    ]
    assert sorted(single, key=lambda row: (row.hour, row.job_id)) == whole
    now = lab.base + 4 * HOUR + 300
    with present(lab.url, now) as url:  # the fourth hour has not settled
        rows, telemetry = _hours(url, lab.base + 2 * HOUR + 1800, now)
    assert {row.hour for row in rows} == {lab.base + 2 * HOUR}
    assert telemetry.complete_through == lab.base + 3 * HOUR


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    world_set = Worlds(pushed_lab)
    world = world_set.new("slurm")
    for host, job in (("c-1", "dcgm"), ("c-1", "dcgm-again"), ("c-2", "dcgm")):
        for gpu, value in ((0, 0.2), (1, 0.6)):
            world.dcgm([(0, None, value)], gpu=gpu, hpc_job="77", Hostname=host, job=job, UUID="")
    world.dcgm([(0, None, 0.5)], gpu=2, hpc_job="78", GPU_I_ID="3", GPU_I_PROFILE="1g.10gb")
    world.dcgm([(0, None, 0.1)], gpu=2, hpc_job="78", GPU_I_ID="4", GPU_I_PROFILE="1g.10gb")
    world.dcgm([(0, None, 0.9)], gpu=3)  # of no job
    world.dcgm([(600, 1200, 99.0)], gpu=0, hpc_job="79", metric=GPU_UTIL)
    world_set.push()
    return world_set


def test_devices_of_several_nodes_add_up_and_count_once_and_slices_too(worlds: Worlds) -> None:
    rows, telemetry = _hours(worlds.url, worlds.begin, worlds.begin + HOUR, matcher='cluster="slurm"')
    assert [(row.job_id, row.busy, row.covered) for row in rows] == [
        ("77", Decimal(5760), 4 * HOUR),
        ("78", Decimal(2160), 2 * HOUR),
        ("79", Decimal(594), 600),
    ]
    assert [row.metric for row in rows] == ["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] * 2 + [GPU_UTIL]
    assert telemetry.notes == []


def test_where_no_job_is_named_the_way_to_it_is_said() -> None:
    def answer(request: Request) -> Reply:
        return success()

    with StandIn(answer, now=1_740_700_000) as prometheus:
        rows, telemetry = _hours(prometheus.url, 1_740_600_000, 1_740_650_000)
        assert rows == []
        (note,) = telemetry.notes
        assert note.endswith(
            "has no metric of DCGM with the label hpc_job: start dcgm-exporter with --hpc-job-mapping-dir, and let "
            "Slurm's prolog and epilog write the jobs there."
        )
        off = Utilisation(scope=Scope.OFF)
        rows, telemetry = _hours(prometheus.url, 1_740_600_000, 1_740_650_000, utilisation=off)
        assert (rows, telemetry.notes, telemetry.complete_through) == ([], [], None)


def test_a_series_that_came_between_two_answers_is_left_to_the_next_reading() -> None:
    hour = 1_740_700_800

    def answer(request: Request) -> Reply:
        if "sum_over_time" in request.query:
            series = {"metric": {"hpc_job": "17", "gpu": "0"}, "values": [[hour + HOUR, "120"]]}
            return success([series], "matrix")
        if request.what == "query_range":
            return success([], "matrix")
        return success([{"metric": {}, "value": [hour + HOUR, "1"]}])

    with StandIn(answer, now=hour + 2 * HOUR) as prometheus:
        rows, telemetry = _hours(prometheus.url, hour, hour + HOUR)
    assert (rows, telemetry.complete_through) == ([], hour + HOUR)


def test_a_warning_is_refused_whole() -> None:
    def answer(request: Request) -> Reply:
        return success(warnings=["a store is away"])

    with (
        StandIn(answer, now=1_740_700_000) as prometheus,
        pytest.raises(ConnectorError, match="a store is away"),
    ):
        _hours(prometheus.url, 1_740_600_000, 1_740_650_000)
