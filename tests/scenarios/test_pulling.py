"""Op's cluster is pulled while Ben's jobs run: each second once, the watermark only after what was read."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from billing.rating import pulls
from billing.rating.ingest import BATCH
from billing.rating.pulls import PullError, PullOutcome
from clusters.connectors.base import ConnectorError
from clusters.models import Cluster, Connection, Pull, UsageRecord, VanishedRun
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.schedulers import Scheduler, a_connection
from tests.stories import closed, hours, prove, seconds

pytestmark = pytest.mark.django_db


def epoch(text: str) -> int:
    return int(at(text).timestamp())


def read_through(cluster: Cluster) -> str:
    mark = Cluster.objects.get(pk=cluster.pk).complete_through
    return f"{mark:%Y-%m-%d %H:%M}" if mark else "never"


def test_the_first_pull_begins_where_op_said_and_the_next_where_it_ended() -> None:
    cluster = a_connection().cluster
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    slurm = Scheduler([a_job(started="2026-03-01 10:00", ended="2026-03-01 12:00")])

    pulled = slurm.pulled(cluster, "2026-03-01 13:00")
    assert (pulled.outcome, pulled.stored.new, pulled.syncs) == (PullOutcome.DONE, 1, 1)
    assert slurm.windows == [(epoch("2026-03-01"), epoch("2026-03-01 13:00"))]
    assert read_through(cluster) == "2026-03-01 13:00"
    assert seconds(vision) == hours(2)

    assert slurm.pulled(cluster, "2026-03-01 13:05").stored.unchanged == 0  # it ended before the look-back
    assert slurm.windows[1] == (epoch("2026-03-01 12:45"), epoch("2026-03-01 13:05"))
    connection = Connection.objects.get()
    assert (connection.api_version, connection.release, connection.failures) == ("v0.0.42", "24.11.3", 0)
    assert connection.next_pull_at == at("2026-03-01 13:10")
    prove()


def test_once_an_hour_the_whole_look_back_is_read_again() -> None:
    cluster = a_connection(look_back=48).cluster
    slurm = Scheduler()
    slurm.pulled(cluster, "2026-03-01 12:00")
    for moment in ("2026-03-01 12:05", "2026-03-01 12:55", "2026-03-01 13:00", "2026-03-01 13:05"):
        slurm.pulled(cluster, moment)
    slurm.pulled(cluster, "2026-03-02 12:00")
    slurm.pulled(cluster, "2026-03-03 12:00")
    slurm.pulled(cluster, "2026-03-04 12:00")
    begins = [since for since, _ in slurm.windows]
    assert begins[1:] == [
        epoch("2026-03-01 11:45"),
        epoch("2026-03-01 11:50"),
        epoch("2026-03-01"),  # the hour is over; nothing is read from before the first usage
        epoch("2026-03-01 12:45"),
        epoch("2026-03-01"),
        epoch("2026-03-01"),
        epoch("2026-03-01 12:00"),
    ]


def test_after_days_of_downtime_it_catches_up_in_passes_of_a_day() -> None:
    cluster = a_connection().cluster
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    slurm = Scheduler()
    slurm.pulled(cluster, "2026-03-01 12:00")
    slurm.rows = [
        a_job(started=f"2026-03-{day:02} 10:00", ended=f"2026-03-{day:02} 12:00") for day in range(2, 5)
    ]
    slurm.rows.append(a_job(started="2026-03-01 14:00", ended="2026-03-04 14:00"))  # in every window

    pulled = slurm.pulled(cluster, "2026-03-05 00:00")
    assert (pulled.syncs, pulled.stored.new) == (4, 4)
    marks = [
        f"{mark:%d %H:%M}" for mark in Pull.objects.order_by("pk").values_list("as_of", flat=True) if mark
    ]
    assert marks == ["01 12:00", "02 12:00", "03 12:00", "04 12:00", "05 00:00"]
    assert [since for since, _ in slurm.windows[2:]] == [
        epoch(f"2026-03-{day:02} 11:45") for day in (2, 3, 4)
    ]
    assert seconds(vision) == hours(6 + 72)
    prove()


def test_a_catch_up_that_breaks_off_goes_on_where_it_was() -> None:
    cluster = a_connection().cluster
    slurm = Scheduler()
    slurm.pulled(cluster, "2026-03-01 12:00")

    def stop_in_the_second_pass() -> None:
        if len(slurm.windows) == 3:
            raise ConnectorError("slurmdbd is down; it is asked again by itself.", retry=True)

    slurm.during = stop_in_the_second_pass
    pulled = slurm.pulled(cluster, "2026-03-05 00:00")
    assert (pulled.outcome, pulled.syncs) == (PullOutcome.FAILED, 1)
    assert read_through(cluster) == "2026-03-02 12:00"
    slurm.during = None
    assert slurm.pulled(cluster, "2026-03-05 00:05").outcome is PullOutcome.DONE
    assert read_through(cluster) == "2026-03-05 00:05"


def test_a_pass_that_fails_keeps_its_rows_and_moves_nothing() -> None:
    cluster = a_connection().cluster
    slurm = Scheduler([a_job(started="2026-03-01 10:00", ended="2026-03-01 11:00") for _ in range(BATCH + 1)])
    slurm.fails = ConnectorError("The answer broke off; it is asked again by itself.", retry=True)
    pulled = slurm.pulled(cluster, "2026-03-01 12:00")
    assert (pulled.outcome, pulled.error) == (
        PullOutcome.FAILED,
        "The answer broke off; it is asked again by itself.",
    )
    assert UsageRecord.objects.count() == BATCH
    assert read_through(cluster) == "never"
    pull = Pull.objects.get()
    assert (pull.outcome, pull.error) == (Pull.Outcome.FAILED, pulled.error)
    slurm.fails = None
    assert slurm.pulled(cluster, "2026-03-01 12:01").stored.new == 1


def test_a_source_that_stays_away_is_asked_ever_less_often_and_heals_by_itself() -> None:
    cluster = a_connection().cluster
    slurm = Scheduler(fails=ConnectorError("slurmrestd does not answer.", retry=True))
    waits = []
    for _ in range(9):
        slurm.pulled(cluster, "2026-03-01 12:00")
        due = Connection.objects.get().next_pull_at
        assert due is not None
        waits.append(int((due - at("2026-03-01 12:00")).total_seconds()))
    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert Connection.objects.get().last_error == "slurmrestd does not answer."

    slurm.fails = None
    slurm.pulled(cluster, "2026-03-01 13:00")
    connection = Connection.objects.get()
    assert (connection.failures, connection.last_error, connection.next_pull_at) == (
        0,
        "",
        at("2026-03-01 13:05"),
    )


def test_what_a_try_cannot_mend_waits_an_hour_at_once() -> None:
    cluster = a_connection().cluster
    Scheduler(fails=ConnectorError("The token has expired; make a new one.", retry=False)).pulled(
        cluster, "2026-03-01 12:00"
    )
    connection = Connection.objects.get()
    assert (connection.next_pull_at, connection.failures) == (at("2026-03-01 13:00"), 1)


def test_a_fault_of_our_own_is_not_hidden_and_puts_the_cluster_off() -> None:
    cluster = a_connection().cluster
    with pytest.raises(ZeroDivisionError):
        Scheduler(fails=ZeroDivisionError("a secret could stand here")).pulled(cluster, "2026-03-01 12:00")
    connection = Connection.objects.get()
    assert connection.last_error.startswith("Something failed here, not at the cluster (ZeroDivisionError)")
    assert connection.next_pull_at == at("2026-03-01 12:00:30")
    assert Pull.objects.get().error == connection.last_error  # without the error's own text


def test_any_window_can_be_read_again_and_the_watermark_stays() -> None:
    cluster = a_connection().cluster
    slurm = Scheduler([a_job(started="2026-03-01 10:00", ended="2026-03-01 12:00")])
    slurm.pulled(cluster, "2026-03-05 00:00")
    due = Connection.objects.get().next_pull_at
    slurm.rows.append(a_job(started="2026-03-01 09:00", ended="2026-03-01 10:00"))  # slurmdbd had lost it

    pulled = slurm.pulled(cluster, "2026-03-09 00:00", since="2026-03-01 00:00", until="2026-03-02 00:00")
    assert (pulled.stored.new, pulled.stored.unchanged) == (1, 1)
    assert read_through(cluster) == "2026-03-05 00:00"
    assert Connection.objects.get().next_pull_at == due
    assert slurm.requests[-1] == []


@pytest.mark.parametrize("fails", [ConnectorError("It has no token.", retry=False), ZeroDivisionError()])
def test_a_window_that_op_asked_for_and_did_not_get_puts_nothing_off(fails: Exception) -> None:
    cluster = a_connection().cluster
    slurm = Scheduler()
    slurm.pulled(cluster, "2026-03-05 00:00")
    schedule = Connection.objects.values_list("next_pull_at", "failures", "last_error", "last_success_at")
    before = schedule.get()
    slurm.fails = fails
    with suppress(ZeroDivisionError):
        result = slurm.pulled(cluster, "2026-03-09 00:00", since="2026-03-01 00:00", until="2026-03-02 00:00")
        assert (result.outcome, result.error) == (PullOutcome.FAILED, "It has no token.")
    assert schedule.get() == before
    pull = Pull.objects.latest("pk")
    assert pull.outcome == Pull.Outcome.FAILED
    assert pull.error.startswith(("It has no token.", "Something failed here"))


def test_a_window_beyond_what_was_read_does_not_hide_the_gap() -> None:
    cluster = a_connection().cluster
    slurm = Scheduler()
    slurm.pulled(cluster, "2026-03-02 00:00")
    pulled = slurm.pulled(cluster, "2026-03-09 00:00", since="2026-03-08 00:00")
    assert read_through(cluster) == "2026-03-02 00:00"
    assert pulled.notes == [
        "The watermark stays where it was: something between it and this window has not been read."
    ]


def test_a_cluster_without_a_connection_and_a_window_that_is_none_are_refused() -> None:
    with pytest.raises(PullError, match="gpu1 has no connection: describe one"):
        pulls.pull(a_cluster(), moment=at("2026-03-01"))
    with pytest.raises(PullError, match="ends before it begins"):
        Scheduler().pulled(
            a_connection().cluster, "2026-03-03", since="2026-03-02 00:00", until="2026-03-01 00:00"
        )


def test_the_pass_of_a_worker_that_was_killed_is_told_as_failed_by_the_next() -> None:
    cluster = a_connection().cluster
    began = at("2026-03-01 11:00")
    dead = Pull.objects.create(
        cluster=cluster, source="x", started_at=began, since=began - timedelta(days=1), until=began
    )
    file = Pull.objects.create(cluster=cluster, source="march.sacct", started_at=began)
    Scheduler().pulled(cluster, "2026-03-01 12:00")
    dead.refresh_from_db()
    file.refresh_from_db()
    assert (dead.outcome, dead.error) == (Pull.Outcome.FAILED, pulls.BURIED)
    assert file.outcome == Pull.Outcome.RUNNING  # somebody else's import, maybe still at work


def test_case_028_an_open_run_that_the_scheduler_no_longer_knows_is_flagged_and_billed_no_further() -> None:
    cluster = a_connection().cluster
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    runaway = a_job(job_id="7", started="2026-03-01 10:00", ended=None, seen_until="2026-03-01 12:00")
    slurm = Scheduler([runaway])
    slurm.pulled(cluster, "2026-03-01 12:00")
    assert not VanishedRun.objects.exists()

    slurm.forgotten = {runaway.source_key}
    pulled = slurm.pulled(cluster, "2026-03-01 12:05")
    assert (pulled.vanished, slurm.requests[-1]) == (1, [runaway.source_key])
    assert VanishedRun.objects.get().since == at("2026-03-01 12:05")
    assert slurm.pulled(cluster, "2026-03-01 12:10").vanished == 0
    assert slurm.requests[-1] == []  # what vanished is asked after once an hour only
    slurm.pulled(cluster, "2026-04-01 00:00")
    assert slurm.requests[-1] == [runaway.source_key]
    assert seconds(vision) == hours(2)

    outcome = closed("2026-03", vision)
    assert outcome.note == (
        "1 run is open here but the scheduler no longer knows it: it is billed until 2026-03-01 12:00 UTC."
    )


def test_a_run_that_comes_back_is_no_longer_flagged() -> None:
    cluster = a_connection().cluster
    job = a_job(job_id="7", started="2026-03-01 10:00", ended=None, seen_until="2026-03-01 12:00")
    waits = a_job(job_id="8", submitted="2026-03-01 10:00", started=None, ended=None, state="PENDING")
    slurm = Scheduler([job, waits])
    slurm.pulled(cluster, "2026-03-01 12:00")
    slurm.forgotten = {job.source_key, waits.source_key}
    assert slurm.pulled(cluster, "2026-03-01 12:05").vanished == 2

    slurm.forgotten = set()
    slurm.rows[0] = a_job(job_id="7", started="2026-03-01 10:00", ended="2026-03-01 12:03")
    assert slurm.pulled(cluster, "2026-03-01 13:05").healed == 2
    assert not VanishedRun.objects.exists()


def test_a_run_that_comes_back_within_the_hour_is_known_again_at_once() -> None:
    cluster = a_connection().cluster
    runs = {"job_id": "7", "started": "2026-03-01 10:00", "ended": None}
    slurm = Scheduler([a_job(seen_until="2026-03-01 12:05", **runs)])
    slurm.pulled(cluster, "2026-03-01 12:05")
    slurm.forgotten = {slurm.rows[0].source_key}
    assert slurm.pulled(cluster, "2026-03-01 12:10").vanished == 1

    slurm.forgotten = set()
    slurm.rows = [a_job(seen_until="2026-03-01 12:15", **runs)]
    assert slurm.pulled(cluster, "2026-03-01 12:15").healed == 1
    assert not VanishedRun.objects.exists()


def test_a_vanished_run_that_a_pass_did_not_come_to_stays_flagged() -> None:
    cluster = a_connection().cluster
    runs = [
        a_job(started="2026-03-01 10:00", ended=None, seen_until="2026-03-01 11:00", state="RUNNING")
        for _ in range(3)
    ]
    slurm = Scheduler([*runs])
    slurm.pulled(cluster, "2026-03-01 11:00")
    slurm.forgotten = {run.source_key for run in runs}
    assert slurm.pulled(cluster, "2026-03-01 12:00").vanished == 3
    slurm.asks = 1
    assert slurm.pulled(cluster, "2026-03-01 13:00").healed == 0
    assert VanishedRun.objects.count() == 3


def test_a_file_does_not_carry_the_watermark_over_what_no_pull_has_read() -> None:
    cluster = a_connection().cluster
    slurm = Scheduler()
    slurm.pulled(cluster, "2026-03-01 12:00")
    slurm.rows = [a_job(started="2026-03-05 10:00", ended="2026-03-05 12:00")]
    of_a_file = a_job(started="2026-03-20 10:00", ended="2026-03-20 11:00")
    assert ingest(cluster, of_a_file).as_of is None
    assert read_through(cluster) == "2026-03-01 12:00"
    assert slurm.pulled(cluster, "2026-03-20 12:00").stored.new == 1
    assert ingest(cluster, of_a_file, as_of="2026-03-20 13:00").as_of == at("2026-03-20 13:00")

    Connection.objects.update(enabled=False)
    later = a_job(started="2026-03-21 10:00", ended="2026-03-21 11:00")
    assert ingest(cluster, later).as_of == at("2026-03-21 11:00")
