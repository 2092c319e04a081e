"""Errors of GPUs: what an exporter told, pushed into a real Prometheus, and which errors that makes.

`DCGM_FI_DEV_XID_ERRORS, gauge, Value of the last XID error encountered.` is a line of dcgm-exporter's
default-counters.csv; its labels are those of the recorded utilisation, with `err_code` and `err_msg` as later versions
add them. So are the counters of the memory: `DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter, Total number of double-bit
volatile ECC errors.` (a comment there: not read by default), `DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS, counter, Number
of remapped rows for uncorrectable errors` and `DCGM_FI_DEV_ROW_REMAP_FAILURE, gauge, Whether remapping of rows has
failed`. Not yet seen from a live source.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from billing.models import ServiceCredit
from billing.service_credits import review, rules
from billing.service_credits.rules import FailureTerms
from clusters import gpu_errors, models
from clusters.connectors.base import ConnectorError
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import PrometheusLogin, PrometheusOptions, Scope, Utilisation
from clusters.connectors.prometheus.gpu_errors import MEMORY, XID, GpuError, GpuErrors, connect
from clusters.models import ClusterKind, Connection, UsageRecord
from tests import builders
from tests.contracts.prometheus_reading import HOUR, connector, findings_of, present
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

BLANK = 2147483632.0
STEP = 30  # seconds from scrape to scrape, at most
story = Stories()


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def source(url: str, **options: Any) -> GpuErrors:
    return connect(
        Endpoint(base_url=url), login=PrometheusLogin(), options=PrometheusOptions(**options), clock=lambda: 0
    )


def errors_of(worlds: Worlds, name: str) -> tuple[list[GpuError], GpuErrors]:
    with source(worlds.url, matcher=f'cluster="{name}"') as reader:
        errors = list(reader.read(since=worlds.begin, until=worlds.begin + World.LENGTH))
        return errors, reader


@story
def _gpus(worlds: Worlds) -> None:
    world = worlds.new("xids")

    def shows(gpu: int, *parts: tuple[int, int | None, int], **labels: str) -> None:
        """Each number is a series of its own, as its label differs."""
        for since, until, xid in parts:
            coded = {"err_code": str(xid), "err_msg": "Unknown Error", "modelName": "NVIDIA H100"} | labels
            world.dcgm([(since, until, float(xid))], metric=XID.metric, gpu=gpu, **coded)

    pod = {"exported_namespace": "team", "exported_pod": "trains", "exported_container": "main"}
    shows(0, (0, 1800, 0), **pod)
    shows(0, (1800, None, 79))  # its pod is gone before the next scrape
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    world.pod("trains", until=1800)
    world.pod("idles")
    shows(1, (0, None, 0))
    shows(2, (0, 4000, 31), (4000, None, 48), hpc_job="17")  # the first was there all along
    shows(3, (0, 900, 0), (900, 5400, 94), (5400, None, 0), hpc_job="18")
    for job in ("dcgm", "dcgm-again"):  # two that scrape one GPU
        shows(4, (0, 3600 - 15, 0), (3600 - 15, None, 119), job=job)
    shows(5, (0, 1000, 0), hpc_job="19")
    world.dcgm([(1000, None, BLANK)], metric=XID.metric, gpu=5, hpc_job="19")


def test_each_change_of_a_gpu_is_one_error_with_who_held_it(worlds: Worlds) -> None:
    errors, reader = errors_of(worlds, "xids")
    begin = worlds.begin
    by_gpu = {error.uuid.rpartition("-")[2]: error for error in errors}
    assert {gpu: (error.cause, error.jobs) for gpu, error in by_gpu.items()} == {
        "0": ("XID 79", ("team/trains/main", "gpu-operator/dcgm-exporter-x/dcgm-exporter")),
        "2": ("XID 48", ("17",)),
        "3": ("XID 94", ("18",)),
        "4": ("XID 119", ("gpu-operator/dcgm-exporter-x/dcgm-exporter",)),
    }
    assert len(errors) == len(by_gpu)  # once each
    for gpu, moment in (("0", 1800), ("2", 4000), ("3", 900), ("4", 3585)):
        assert by_gpu[gpu].clean_until < begin + moment <= by_gpu[gpu].at + 1
        assert by_gpu[gpu].at - by_gpu[gpu].clean_until <= 2 * STEP
    assert (by_gpu["0"].node, by_gpu["0"].gpu_model, by_gpu["0"].gpu_slice) == ("n-1", "NVIDIA H100", "")
    assert len(reader.undated) == 1  # GPU 2, whose 31 the first sample told
    assert reader.complete_through == begin + World.LENGTH


def test_read_hour_by_hour_it_is_the_same(worlds: Worlds) -> None:
    whole, _ = errors_of(worlds, "xids")
    parts = []
    for hour in range(worlds.begin, worlds.begin + World.LENGTH, HOUR):
        with source(worlds.url, matcher='cluster="xids"') as reader:
            parts += list(reader.read(since=hour, until=hour + HOUR))
    assert parts == whole


@story
def _memories(worlds: Worlds) -> None:
    world = worlds.new("memories")
    ecc, rows, failure = (sign.metric for sign in MEMORY)
    held = {"hpc_job": "21"}

    def counts(metric: str, gpu: int, *parts: tuple[int, int | None, int], **labels: str) -> None:
        samples = [(since, until, float(value)) for since, until, value in parts]
        world.dcgm(samples, metric=metric, gpu=gpu, **labels)

    counts(ecc, 0, (0, 1800, 0), (1800, 5000, 1), (5000, None, 3), **held)  # twice
    counts(rows, 0, (0, 1800, 2), (1800, None, 3), **held)  # of the same failure, beside rows of long ago
    counts(failure, 1, (0, 3590, 0), **held)
    counts(failure, 1, (3590, None, 1), hpc_job="22")  # its job is another by then
    counts(ecc, 2, (0, None, 7), **held)  # of long ago
    counts(ecc, 3, (0, 1200, 5), (1200, 2400, 0), (2400, None, 1), **held)  # the driver was loaded again
    counts(ecc, 4, (0, 1000, 0), **held)
    world.dcgm([(1000, None, BLANK)], metric=ecc, gpu=4, **held)


def test_what_the_memory_could_not_correct_is_an_error_by_its_counters(worlds: Worlds) -> None:
    errors, reader = errors_of(worlds, "memories")
    begin = worlds.begin
    by_gpu = sorted((error.uuid.rpartition("-")[2], error.cause, error.jobs) for error in errors)
    assert by_gpu == [
        ("0", "ECC_DBE", ("21",)),
        ("0", "ECC_DBE", ("21",)),
        ("0", "ROW_REMAP", ("21",)),
        ("1", "ROW_REMAP_FAILURE", ("21", "22")),
        ("3", "ECC_DBE", ("21",)),
    ]
    moments = sorted((error.cause, error.at) for error in errors)
    for (_, at), moment in zip(moments, (1800, 2400, 5000, 1800, 3590), strict=True):
        assert begin + moment - 1 <= at <= begin + moment + STEP
    assert not reader.undated  # what a counter has from before is no error
    parts = []
    for hour in range(begin, begin + World.LENGTH, HOUR):
        with source(worlds.url, matcher='cluster="memories"') as hourly:
            parts += list(hourly.read(since=hour, until=hour + HOUR))
    assert parts == errors


def test_the_connection_test_counts_what_is_there(worlds: Worlds) -> None:
    now = worlds.begin + World.LENGTH
    with present(worlds.url, now) as url:
        found = findings_of(url, now, {"matcher": 'cluster="xids"'})["GPU errors"]
    assert found.sentence.startswith(f"{XID.metric} has ")
    absent = ", ".join(sign.metric for sign in MEMORY)
    assert found.sentence.endswith(f"There is no {absent}: no failed GPU is seen by it.")


def test_a_prometheus_that_is_not_there_or_knows_no_gpus_gives_no_errors(worlds: Worlds) -> None:
    assert errors_of(worlds, "none")[0] == []
    with source("http://127.0.0.1:9") as reader, pytest.raises(ConnectorError):
        list(reader.read(since=0, until=HOUR))


@pytest.mark.django_db
def test_a_pod_whose_gpu_failed_is_met_by_what_the_same_prometheus_tells(worlds: Worlds) -> None:
    begin, end = worlds.begin, worlds.begin + World.LENGTH
    cluster = builders.a_cluster("kube", kind=ClusterKind.PROMETHEUS)
    tenant = builders.a_tenant("vision", plan=builders.a_plan(), accounts=[(cluster, "team")])
    terms = FailureTerms(xids=[79], states=(), watch=False)
    rules.set_rule(name="failed", terms=terms, moment=datetime.fromtimestamp(begin, UTC))
    pods = connector(worlds.url, matcher='cluster="xids"', utilisation=Utilisation(scope=Scope.OFF))
    builders.ingest(cluster, *pods.usage(since=begin, until=end, open_keys=()))
    with present(worlds.url, end + 700) as url:
        connection = Connection.objects.create(
            cluster=cluster,
            base_url=url,
            options={"matcher": 'cluster="xids"'},
            first_usage_from=datetime.fromtimestamp(begin, UTC),
        )
        assert [gpu_errors.read(connection, clock=lambda: end + 700) for _ in range(2)] == [4, 0]

    run = UsageRecord.objects.get(job_id="team/trains")
    rows = dict(models.GpuError.objects.values_list("cause", "record_id"))
    assert rows == {"XID 79": run.pk, "XID 48": None, "XID 94": None, "XID 119": None}
    review.review_failures(moment=datetime.fromtimestamp(end, UTC))
    credit = ServiceCredit.objects.get()
    assert (credit.tenant, credit.cause, credit.gpu) == (tenant, "XID 79", "GPU-xids-0")
    assert credit.ended_at.timestamp() == run.ended
