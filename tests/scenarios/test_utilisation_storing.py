"""How busy runs were: stored once however often it is told, and given for any span of time."""

from __future__ import annotations

from decimal import Decimal

import pytest

from clusters.connectors.base import BusyHour, BusySource, ConnectorError
from clusters.models import Connection, Pull, UsageRecord, UtilisationHour
from tests.builders import a_bad_row, a_cluster, a_job, at, ingest
from tests.schedulers import Scheduler, a_connection

pytestmark = pytest.mark.django_db

GR = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def busy(key: str, hour: str, seconds: str, covered: int, source: str = "device") -> BusyHour:
    return BusyHour(key, int(at(hour).timestamp()), Decimal(seconds), covered, BusySource(source), GR)


def op_reads() -> Connection:
    return a_connection(first_usage_from=at("2026-03-02"))


def stored() -> list[tuple[str, str, str, int, str]]:
    rows = UtilisationHour.objects.order_by("record__source_key", "hour").select_related("record")
    return [
        (row.record.source_key, _hour(row.hour), f"{row.busy.normalize():f}", row.covered, row.source)
        for row in rows
    ]


def _hour(second: int) -> str:
    return f"{second // 3600 % 24:02d}:00"


def test_hours_are_stored_with_their_run_and_told_again_change_nothing() -> None:
    scheduler = Scheduler(rows=[
        a_job(source_key="train", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 12:00"),
        busy("train", "2026-03-02 10:00", "3600.5", 7200),
        busy("train", "2026-03-02 11:00", "0", 7200),
    ])  # fmt: skip
    gpu1 = op_reads().cluster
    scheduler.pulled(gpu1, "2026-03-02 13:00")
    assert stored() == [("train", "10:00", "3600.5", 7200, "device"), ("train", "11:00", "0", 7200, "device")]
    scheduler.pulled(gpu1, "2026-03-02 13:05")
    assert stored() == [("train", "10:00", "3600.5", 7200, "device"), ("train", "11:00", "0", 7200, "device")]
    passes = Pull.objects.order_by("pk").values_list("busy_read", "busy_changed")
    assert list(passes) == [(2, 2), (2, 0)]


def test_what_arrives_late_replaces_what_stood() -> None:
    scheduler = Scheduler(rows=[a_job(source_key="train"), busy("train", "2026-03-02 10:00", "100", 600)])
    gpu1 = op_reads().cluster
    scheduler.pulled(gpu1, "2026-03-02 13:00")
    scheduler.rows = [busy("train", "2026-03-02 10:00", "1800.25", 3600, "node")]
    scheduler.pulled(gpu1, "2026-03-02 13:05")
    assert stored() == [("train", "10:00", "1800.25", 3600, "node")]
    assert UsageRecord.objects.get().revision == 1


def test_of_one_hour_told_twice_the_last_word_holds() -> None:
    ingest(
        a_cluster(),
        a_job(source_key="train"),
        busy("train", "2026-03-02 10:00", "10", 3600),
        busy("train", "2026-03-02 10:00", "20", 3600),
    )
    assert stored() == [("train", "10:00", "20", 3600, "device")]


def test_a_pass_that_breaks_off_keeps_its_batches_and_the_next_one_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("billing.rating.ingest.BATCH", 2)
    scheduler = Scheduler(rows=[
        a_job(source_key="one"), busy("one", "2026-03-02 10:00", "1", 3600),
        a_job(source_key="two"), busy("two", "2026-03-02 10:00", "2", 3600),
    ])  # fmt: skip
    scheduler.fails = ConnectorError("It went away.", retry=True)
    gpu1 = op_reads().cluster
    scheduler.pulled(gpu1, "2026-03-02 13:00")
    assert stored() == [("one", "10:00", "1", 3600, "device")]
    scheduler.fails = None
    scheduler.pulled(gpu1, "2026-03-02 13:05")
    assert stored() == [("one", "10:00", "1", 3600, "device"), ("two", "10:00", "2", 3600, "device")]


def test_hours_of_runs_that_are_not_recorded_are_counted_and_told() -> None:
    scheduler = Scheduler(rows=[
        a_job(source_key="train"), a_bad_row(source_key="odd"),
        busy("odd", "2026-03-02 10:00", "1", 3600), busy("train", "2026-03-02 10:00", "5", 3600),
    ])  # fmt: skip
    scheduler.pulled(op_reads().cluster, "2026-03-02 13:00")
    assert stored() == [("train", "10:00", "5", 3600, "device")]
    assert (
        Pull.objects.get().notes
        == "1 hour of utilisation left out, of runs that are not recorded here (odd): rows in quarantine may be "
        "theirs, or their usage was never read."
    )


@pytest.mark.parametrize(
    ("busy_hour", "why"),
    [
        (busy("train", "2026-03-02 10:00", "5401", 3600), "was busy for 5401 s of 3600 s"),
        (busy("train", "2026-03-02 10:00", "-1", 3600), "was busy for -1 s of 3600 s"),
        (busy("train", "2026-03-02 10:00", "NaN", 3600), "was covered for 3600 s and busy for NaN s"),
        (busy("train", "2026-03-02 10:00", "0", -3600), "was covered for -3600 s and busy for 0 s"),
        (busy("train", "2026-03-02 10:00", "0", 3601), "train had more seconds than its devices"),
        (busy("train", "2026-03-02 10:30", "0", 3600), "where no hour begins"),
    ],
)
def test_what_cannot_be_true_is_left_out_and_told(busy_hour: BusyHour, why: str) -> None:
    scheduler = Scheduler(rows=[a_job(source_key="train"), busy_hour])
    scheduler.pulled(op_reads().cluster, "2026-03-02 13:00")
    assert stored() == []
    notes = Pull.objects.get().notes
    assert why in notes
    assert notes.startswith("1 hour of utilisation left out as impossible (")
    assert notes.endswith("check the metric and its divisor in the connection's options.")


def test_a_little_more_than_all_of_the_time_is_noise() -> None:
    ingest(a_cluster(), a_job(source_key="train"), busy("train", "2026-03-02 10:00", "3610", 3600))
    assert stored() == [("train", "10:00", "3600", 3600, "device")]


def test_other_clusters_runs_of_the_same_name_are_left_alone() -> None:
    one, other = a_cluster("one"), a_cluster("other")
    ingest(one, a_job(source_key="train"), busy("train", "2026-03-02 10:00", "1", 3600))
    ingest(other, a_job(source_key="train"), busy("train", "2026-03-02 10:00", "2", 3600))
    rows = UtilisationHour.objects.values_list("record__cluster__name", "busy").order_by("busy")
    assert list(rows) == [("one", Decimal(1)), ("other", Decimal(2))]
