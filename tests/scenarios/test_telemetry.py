"""A Slurm cluster's Prometheus tells how busy its jobs' devices were: read beside the scheduler, never in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import pytest

from clusters import connection_test, sources
from clusters.connectors.base import ConnectorError
from clusters.connectors.clocks import Clocks
from clusters.connectors.prometheus.connector import JobHour
from clusters.connectors.prometheus.coverage import whole_hours
from clusters.models import Cluster, ClusterKind, Pull, Telemetry, UsageRecord, UtilisationHour
from tests.builders import a_cluster, a_job, at
from tests.scenarios.configuring import Op
from tests.schedulers import Scheduler, a_connection

pytestmark = pytest.mark.django_db

GR = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


@dataclass
class Dcgm:
    """What DCGM tells of jobs, and how it answers."""

    rows: list[JobHour] = field(default_factory=list)
    fails: Exception | None = None  # after its rows
    windows: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete_through: int | None = None
    clocks: Clocks | None = None

    def connect(self, row: Telemetry, *, clock: Callable[[], int]) -> Self:
        del row, clock
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def hours(self, *, since: int, until: int) -> Iterator[JobHour]:
        self.windows.append((since, until))
        window = whole_hours(since, until - 600)
        yield from (row for row in self.rows if row.hour in window)
        if self.fails is not None:
            raise self.fails
        self.complete_through = window.stop if window else None

    def tell(self, job: str, hour: str, busy: str, covered: int = 3600) -> None:
        self.rows.append(JobHour(job, int(at(hour).timestamp()), Decimal(busy), covered, GR))


@pytest.fixture
def dcgm(monkeypatch: pytest.MonkeyPatch) -> Dcgm:
    source = Dcgm()
    monkeypatch.setattr(sources, "job_telemetry", source.connect)
    monkeypatch.setattr(connection_test, "job_telemetry", source.connect)
    return source


@pytest.fixture
def gpu1() -> Cluster:
    """Read from 2 March on, with telemetry."""
    cluster = a_connection(first_usage_from=at("2026-03-02")).cluster
    Telemetry.objects.create(cluster=cluster, base_url="http://127.0.0.1:9090")
    return cluster


def job(number: int, started: str, ended: str | None, **fields: Any) -> Any:
    values = {"job_id": str(number), "source_key": f"{number}@{int(at(started).timestamp()) - 60}", **fields}
    return a_job(started=started, ended=ended, **values)


def stored() -> list[tuple[str, str, str, int]]:
    rows = UtilisationHour.objects.select_related("record").order_by("record__source_key", "hour")
    return [
        (row.record.job_id, f"{row.hour // 3600 % 24:02d}:00", f"{row.busy.normalize():f}", row.covered)
        for row in rows
    ]


def test_how_busy_a_job_was_is_stored_with_its_record(gpu1: Cluster, dcgm: Dcgm) -> None:
    slurm = Scheduler([job(17, "2026-03-02 10:30", "2026-03-02 12:00", gpus=2)])
    dcgm.tell("17", "2026-03-02 10:00", "1830", 3660)  # a sample more than it ran
    dcgm.tell("17", "2026-03-02 11:00", "3600.5", 7200)
    slurm.pulled(gpu1, "2026-03-02 13:00")
    assert stored() == [("17", "10:00", "1800", 3600), ("17", "11:00", "3600.5", 7200)]
    assert {row.source for row in UtilisationHour.objects.all()} == {"device"}
    row = Telemetry.objects.get()
    assert row.complete_through == at("2026-03-02 12:00")
    assert (row.failures, row.last_error, row.notes) == (0, "", "")
    assert UsageRecord.objects.get().revision == 1


def test_tasks_of_arrays_are_known_by_their_own_numbers(gpu1: Cluster, dcgm: Dcgm) -> None:
    slurm = Scheduler([
        job(101, "2026-03-02 10:00", "2026-03-02 11:00", job_id="100_1"),
        job(102, "2026-03-02 10:00", "2026-03-02 11:00", job_id="100_2"),
    ])  # fmt: skip
    dcgm.tell("102", "2026-03-02 10:00", "7")
    slurm.pulled(gpu1, "2026-03-02 13:00")
    assert stored() == [("100_2", "10:00", "7", 3600)]


def test_of_jobs_of_one_number_the_one_that_ran_then_is_meant(gpu1: Cluster, dcgm: Dcgm) -> None:
    slurm = Scheduler([
        job(17, "2026-03-02 01:00", "2026-03-02 02:00", name="before the numbers began anew"),
        job(17, "2026-03-02 10:00", "2026-03-02 11:00"),
    ])  # fmt: skip
    dcgm.tell("17", "2026-03-02 10:00", "9")
    slurm.pulled(gpu1, "2026-03-02 13:00")
    (hour,) = UtilisationHour.objects.select_related("record")
    assert not hour.record.name
    assert hour.busy == 9


def test_a_job_that_was_requeued_within_the_hour_shares_it(gpu1: Cluster, dcgm: Dcgm) -> None:
    slurm = Scheduler([
        job(17, "2026-03-02 10:00", "2026-03-02 10:15"),
        job(17, "2026-03-02 10:15", "2026-03-02 12:00"),
    ])  # fmt: skip
    dcgm.tell("17", "2026-03-02 10:00", "1000")
    slurm.pulled(gpu1, "2026-03-02 13:00")
    assert stored() == [("17", "10:00", "250", 900), ("17", "10:00", "750", 2700)]


def test_a_job_that_ended_as_it_began_keeps_no_other_from_being_read(gpu1: Cluster, dcgm: Dcgm) -> None:
    slurm = Scheduler([
        job(17, "2026-03-02 10:30", "2026-03-02 10:30"),
        job(18, "2026-03-02 10:00", "2026-03-02 11:00"),
    ])  # fmt: skip
    dcgm.tell("17", "2026-03-02 10:00", "0", covered=15)  # its epilog took longer than a scrape
    dcgm.tell("18", "2026-03-02 10:00", "9")
    slurm.pulled(gpu1, "2026-03-02 13:00")
    assert stored() == [("18", "10:00", "9", 3600)]
    row = Telemetry.objects.get()
    assert (row.last_error, row.notes, row.complete_through) == ("", "", at("2026-03-02 12:00"))


def test_its_trouble_is_told_and_never_the_schedulers(gpu1: Cluster, dcgm: Dcgm) -> None:
    slurm = Scheduler([job(17, "2026-03-02 10:00", "2026-03-02 11:00")])
    dcgm.tell("17", "2026-03-02 10:00", "9")
    dcgm.fails = ConnectorError("127.0.0.1:9090 does not answer.", retry=True)
    pulled = slurm.pulled(gpu1, "2026-03-02 13:00")
    assert pulled.outcome == "done"
    assert pulled.notes == ["How busy its jobs were could not be read: 127.0.0.1:9090 does not answer."]
    assert Pull.objects.get().outcome == "done"
    row = Telemetry.objects.get()
    assert (row.failures, row.last_error) == (1, "127.0.0.1:9090 does not answer.")
    assert (row.complete_through, row.next_at) == (None, at("2026-03-02 13:02"))

    dcgm.fails = None
    slurm.pulled(gpu1, "2026-03-02 13:01")
    assert len(dcgm.windows) == 1
    slurm.pulled(gpu1, "2026-03-02 13:05")
    row.refresh_from_db()
    assert (row.failures, row.last_error, row.complete_through) == (0, "", at("2026-03-02 12:00"))
    assert stored() == [("17", "10:00", "9", 3600)]


def test_a_fault_of_our_own_is_not_hidden_and_stops_no_pull(gpu1: Cluster, dcgm: Dcgm) -> None:
    dcgm.fails = ZeroDivisionError("of a secret")
    pulled = Scheduler().pulled(gpu1, "2026-03-02 13:00")
    assert pulled.outcome == "done"
    assert Telemetry.objects.get().last_error == (
        "Something failed here, not at the telemetry (ZeroDivisionError); the worker's log says what."
    )


def test_each_hour_is_read_once_it_is_over_and_the_look_back_with_it(gpu1: Cluster, dcgm: Dcgm) -> None:
    slurm = Scheduler([job(17, "2026-03-02 10:00", "2026-03-02 14:00")])
    slurm.pulled(gpu1, "2026-03-02 13:15")
    slurm.pulled(gpu1, "2026-03-02 13:20")
    slurm.pulled(gpu1, "2026-03-02 14:05")
    assert len(dcgm.windows) == 1
    dcgm.tell("17", "2026-03-02 11:00", "9")  # came late
    slurm.pulled(gpu1, "2026-03-02 14:15")
    assert [since for since, _ in dcgm.windows] == [
        int(at("2026-03-02").timestamp()),
        int(at("2026-02-28 13:00").timestamp()),
    ]
    assert stored() == [("17", "11:00", "9", 3600)]


def test_a_reading_that_breaks_off_goes_on_where_it_was(
    gpu1: Cluster, dcgm: Dcgm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusters.telemetry.BATCH", 1)
    slurm = Scheduler([job(17, "2026-03-02 10:00", "2026-03-02 12:00")])
    dcgm.tell("17", "2026-03-02 10:00", "9")
    dcgm.fails = ConnectorError("It went away.", retry=True)
    slurm.pulled(gpu1, "2026-03-02 13:00")
    assert stored() == [("17", "10:00", "9", 3600)]
    assert Telemetry.objects.get().complete_through == at(
        "2026-03-02 10:00"
    )  # that hour may not be whole yet
    dcgm.fails = None
    dcgm.tell("17", "2026-03-02 11:00", "10")
    slurm.pulled(gpu1, "2026-03-02 13:05")
    assert stored() == [("17", "10:00", "9", 3600), ("17", "11:00", "10", 3600)]


def test_jobs_that_are_not_recorded_are_told(gpu1: Cluster, dcgm: Dcgm) -> None:
    dcgm.tell("18", "2026-03-02 10:00", "9")
    dcgm.notes = ["2 values could not be true."]
    Scheduler([job(17, "2026-03-02 10:00", "2026-03-02 11:00")]).pulled(gpu1, "2026-03-02 13:00")
    assert stored() == []
    assert Telemetry.objects.get().notes.splitlines() == [
        "2 values could not be true.",
        (
            "1 hour of utilisation left out, of runs that are not recorded here (job 18): rows in quarantine may be "
            "theirs, or their usage was never read."
        ),
    ]


def test_op_says_in_a_file_where_it_listens(
    tmp_path: Path, dcgm: Dcgm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROM_TOKEN", "prom-secret-token")
    op = Op(tmp_path)
    text = (
        '[[cluster]]\nname = "gpu1"\nkind = "slurm"\n[cluster.connection]\nurl = "http://127.0.0.1:6820"\n'
        '[cluster.telemetry]\nurl = "http://127.0.0.1:9090"\ntoken = "env:PROM_TOKEN"\n'
        'options = { matcher = "cluster=\\"gpu1\\"" }\n'
    )
    assert any(
        line.startswith("telemetry of gpu1: new (url http://127.0.0.1:9090") for line in op.applies(text)
    )
    assert op.applies(text) == ["Nothing to change."]
    assert "prom-secret-token" not in Telemetry.objects.get().token.token
    moved = " ".join(op.is_refused(text.replace(":9090", ":9091").replace('token = "env:PROM_TOKEN"\n', "")))
    assert "its telemetry leads to another address" in moved
    assert "prom-secret-token" not in moved
    kube = text.replace("slurm", "prometheus")
    assert "for clusters of the kind 'slurm'" in " ".join(op.is_refused(kube.replace("gpu1", "kube1")))
    with_key = text + 'password = "env:PROM_TOKEN"\n'
    assert "There is a password without a user." in " ".join(op.is_refused(with_key))
    assert op.applies(text + "enabled = false\n") == ["telemetry of gpu1: enabled yes -> no"]
    Scheduler().pulled(Cluster.objects.get(), "2026-03-02 13:00")
    assert dcgm.windows == []


def test_testing_the_connection_says_what_dcgm_tells(gpu1: Cluster, dcgm: Dcgm) -> None:
    dcgm.tell("17", "2026-03-02 10:00", "9")
    dcgm.tell("18", "2026-03-02 10:00", "9")
    now = int(at("2026-03-02 12:00").timestamp())

    def sentence() -> str:
        return connection_test.examine(cluster=gpu1, clock=lambda: now)[-1].sentence

    assert sentence() == f"It tells how busy the devices of 2 jobs were in the last hours, by {GR}."
    dcgm.rows, dcgm.notes = [], ["It has no metric of DCGM with the label hpc_job."]
    assert sentence() == "It has no metric of DCGM with the label hpc_job."
    dcgm.fails = ConnectorError("127.0.0.1:9090 does not answer.", retry=True)
    assert sentence() == "127.0.0.1:9090 does not answer."


def test_a_cluster_without_telemetry_reads_none(dcgm: Dcgm) -> None:
    cluster = a_connection(a_cluster(kind=ClusterKind.SLURM), first_usage_from=at("2026-03-02")).cluster
    Scheduler().pulled(cluster, "2026-03-02 13:00")
    assert dcgm.windows == []
