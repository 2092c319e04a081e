"""Errors of GPUs are read from the Prometheus of a cluster, stored once, and matched with the run that held them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from clusters import gpu_errors, sources
from clusters.connectors.base import ConnectorError
from clusters.connectors.clocks import Clocks
from clusters.connectors.prometheus.coverage import whole_hours
from clusters.connectors.prometheus.gpu_errors import GpuError as Told
from clusters.gpu_causes import xid_cause
from clusters.models import Cluster, Connection, GpuError, GpuErrorReading, Telemetry, UsageRecord
from tests.builders import a_job, at, ingest
from tests.schedulers import a_connection

pytestmark = pytest.mark.django_db


def second(text: str) -> int:
    return int(at(text).timestamp())


@dataclass
class Exporter:
    """What a Prometheus tells of XIDs, and how it answers."""

    errors: list[Told] = field(default_factory=list)
    fails: Exception | None = None
    windows: list[tuple[int, int]] = field(default_factory=list)
    undated: set[tuple[str, str]] = field(default_factory=set)
    complete_through: int | None = None
    clocks: Clocks | None = None

    def connect(self, connection: Connection, *, clock: Callable[[], int]) -> Self:
        del connection, clock
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def read(self, *, since: int, until: int) -> Iterator[Told]:
        self.windows.append((since, until))
        if self.fails is not None:
            raise self.fails
        window = whole_hours(since, until - 600)
        yield from (row for row in self.errors if window.start <= row.at < window.stop)
        self.complete_through = window.stop if window else None

    def tell(self, xid: int, moment: str, *jobs: str, clean_until: str = "") -> None:
        self.errors.append(
            Told(
                "GPU-1",
                "",
                xid_cause(xid),
                second(moment),
                second(clean_until or moment) - 30,
                "n-7",
                "H100",
                jobs,
            )
        )


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Exporter:
    source = Exporter()
    monkeypatch.setattr(sources, "gpu_errors", source.connect)
    return source


@pytest.fixture
def gpu1() -> Cluster:
    cluster = a_connection(first_usage_from=at("2026-03-02")).cluster
    Telemetry.objects.create(cluster=cluster, base_url="http://127.0.0.1:9090")
    return cluster


def read(moment: str) -> int:
    return gpu_errors.read_due(clock=lambda: second(moment))


def ran(cluster: Cluster, job_id: str, started: str, ended: str, **fields: Any) -> int:
    key = fields.pop("source_key", f"{job_id}@{second(started) - 60}")
    ingest(
        cluster,
        a_job(job_id=job_id, source_key=key, started=started, ended=ended, **fields),
        as_of="2026-06-01",
    )
    return UsageRecord.objects.get(source_key=key).pk


def matched() -> dict[str, int | None]:
    return dict(GpuError.objects.values_list("cause", "record_id"))


def test_an_error_is_stored_once_with_the_run_that_held_the_gpu(gpu1: Cluster, exporter: Exporter) -> None:
    run = ran(gpu1, "17", "2026-03-02 10:00", "2026-03-02 12:00")
    ran(gpu1, "18", "2026-03-02 10:00", "2026-03-02 12:00")
    exporter.tell(79, "2026-03-02 11:30", "17")
    assert read("2026-03-02 13:00") == 1
    assert read("2026-03-02 13:00") == 0  # not due
    GpuErrorReading.objects.update(complete_through=at("2026-03-02"), next_at=None)
    assert read("2026-03-02 13:00") == 0  # read again, it is the same
    row = GpuError.objects.get()
    assert (row.cause, row.uuid, row.node, row.at, row.record_id) == (
        "XID 79",
        "GPU-1",
        "n-7",
        at("2026-03-02 11:30"),
        run,
    )
    reading = GpuErrorReading.objects.get()
    assert (reading.complete_through, reading.next_at) == (at("2026-03-02 12:00"), at("2026-03-02 13:11"))


def test_a_job_that_died_before_the_scrape_held_it(gpu1: Cluster, exporter: Exporter) -> None:
    run = ran(gpu1, "17", "2026-03-02 10:00", "2026-03-02 10:59:50")
    ran(gpu1, "18", "2026-03-02 11:00:10", "2026-03-02 12:00")
    exporter.tell(79, "2026-03-02 11:00", "17", "18", clean_until="2026-03-02 10:59:45")
    read("2026-03-02 13:00")
    assert matched() == {"XID 79": run}


def test_who_held_it_is_not_guessed(gpu1: Cluster, exporter: Exporter) -> None:
    ran(gpu1, "17", "2026-03-02 10:00", "2026-03-02 11:00")
    ran(gpu1, "18", "2026-03-02 10:00", "2026-03-02 12:00")
    exporter.tell(48, "2026-03-02 10:30", "17", "18")
    exporter.tell(63, "2026-03-02 11:30", "17")
    exporter.tell(64, "2026-03-02 11:40")
    exporter.tell(74, "2026-03-02 11:50", "1")
    read("2026-03-02 13:00")
    assert matched() == {"XID 48": None, "XID 63": None, "XID 64": None, "XID 74": None}


def test_pods_are_known_by_namespace_name_and_container(gpu1: Cluster, exporter: Exporter) -> None:
    times = ("2026-03-02 10:00", "2026-03-02 12:00")
    run = ran(gpu1, "team/train-0", *times, source_key="uid-1/main/gpu")
    ran(gpu1, "team/train-0", *times, source_key="uid-1/side/gpu")
    exporter.tell(79, "2026-03-02 11:30", "team/train-0/main", "gpu-operator/dcgm/dcgm")
    read("2026-03-02 13:00")
    assert matched() == {"XID 79": run}


def test_a_run_that_is_read_later_is_matched_then(gpu1: Cluster, exporter: Exporter) -> None:
    exporter.tell(79, "2026-03-02 11:30", "17")
    read("2026-03-02 13:00")
    assert matched() == {"XID 79": None}
    run = ran(gpu1, "17", "2026-03-02 10:00", "2026-03-02 12:00")
    read("2026-03-02 14:15")
    assert matched() == {"XID 79": run}


def test_its_trouble_is_told_and_tried_again(gpu1: Cluster, exporter: Exporter) -> None:
    exporter.tell(79, "2026-03-02 11:30", "17")
    exporter.fails = ConnectorError("127.0.0.1:9090 does not answer.", retry=True)
    assert read("2026-03-02 13:00") == 0
    row = GpuErrorReading.objects.get()
    assert (row.failures, row.last_error, row.next_at) == (
        1, "127.0.0.1:9090 does not answer.", at("2026-03-02 13:02"),
    )  # fmt: skip
    exporter.fails = ZeroDivisionError("of a secret")
    read("2026-03-02 13:05")
    assert "(ZeroDivisionError); the worker's log says what." in GpuErrorReading.objects.get().last_error
    exporter.fails, exporter.undated = None, {("GPU-2", "")}
    assert read("2026-03-02 13:30") == 1
    row.refresh_from_db()
    assert (row.failures, row.last_error) == (0, "")
    assert row.notes == (
        "The first sample of 1 GPU told of an XID: when it happened is not known, so that it counts for no job."
    )


def test_a_cluster_without_a_prometheus_is_not_read(gpu1: Cluster) -> None:
    Telemetry.objects.all().delete()
    assert read("2026-03-02 13:00") == 0
    assert not GpuErrorReading.objects.exists()


def test_the_prometheus_is_the_telemetrys_or_the_connections_own(gpu1: Cluster) -> None:
    slurm = Connection.objects.get()
    with sources.gpu_errors(slurm, clock=lambda: 0) as source:  # type: ignore[union-attr]
        assert source.client.http.address == "http://127.0.0.1:9090"
