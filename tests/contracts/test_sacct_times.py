"""When a job held its resources: open and ended, suspended, resized, and over nights on which clocks change.

In Los Angeles clocks went back on 2017-11-05 from 02:00 PDT (09:00Z) to 01:00 PST: 01:30 was first
1509870600 (PDT), then 1509874200 (PST). On 2017-03-12 there was no 02:30.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from clusters.connectors.base import UnreadableError
from clusters.connectors.sacct.times import Clock
from tests.contracts.sacct_exports import LOS_ANGELES, read_rows, row

if TYPE_CHECKING:
    from pathlib import Path

    from clusters.connectors.base import BadRow, UsageFact

FIRST_HALF_PAST_ONE, SECOND_HALF_PAST_ONE = 1509870600, 1509874200
TWO_PST = 1509876000  # 2017-11-05T02:00:00, after the change
EIGHT = 1767600000  # 2026-01-05T08:00:00Z


def night(tmp_path: Path, submit: str, start: str, end: str, elapsed: str, **changed: str) -> UsageFact:
    text = row(Submit=submit, Start=start, End=end, ElapsedRaw=elapsed, **changed)
    return read_rows(tmp_path, text, zone=LOS_ANGELES).fact


def rejected_row(tmp_path: Path, submit: str, start: str, end: str, elapsed: str, **changed: str) -> BadRow:
    text = row(Submit=submit, Start=start, End=end, ElapsedRaw=elapsed, **changed)
    return read_rows(tmp_path, text, zone=LOS_ANGELES).refused


@pytest.mark.parametrize(
    ("elapsed", "started"), [("5400", FIRST_HALF_PAST_ONE), ("1800", SECOND_HALF_PAST_ONE)]
)
def test_the_reading_that_matches_the_elapsed_time_wins(tmp_path: Path, elapsed: str, started: int) -> None:
    half_past = "2017-11-05T01:30:00"
    fact = night(tmp_path, half_past, half_past, "2017-11-05T02:00:00", elapsed)
    assert (fact.started, fact.ended) == (started, TWO_PST)
    assert fact.source_key == f"4711@{started}"  # submitted at the same second


def test_if_both_readings_match_it_is_the_earlier(tmp_path: Path) -> None:
    fact = night(tmp_path, "2017-11-04T20:00:00", "2017-11-05T01:30:00", "2017-11-05T01:40:00", "600")
    assert fact.started == FIRST_HALF_PAST_ONE


def test_a_job_that_ran_through_the_repeated_hour_ends_in_its_second_half(tmp_path: Path) -> None:
    fact = night(tmp_path, "2017-11-05T01:30:00", "2017-11-05T01:30:00", "2017-11-05T01:10:00", "2400")
    assert (fact.started, fact.ended) == (FIRST_HALF_PAST_ONE, FIRST_HALF_PAST_ONE + 2400)


def test_suspended_seconds_belong_to_the_length(tmp_path: Path) -> None:
    half_past = "2017-11-05T01:30:00"
    fact = night(tmp_path, half_past, half_past, "2017-11-05T02:00:00", "1800", Suspended="01:00:00")
    assert (fact.started, fact.ended, fact.suspended) == (FIRST_HALF_PAST_ONE, TWO_PST, 3600)


def test_nothing_starts_before_it_was_submitted_if_it_has_the_choice(tmp_path: Path) -> None:
    fact = night(tmp_path, "2017-11-05T01:30:00", "2017-11-05T01:10:00", "2017-11-05T01:20:00", "600")
    assert (fact.submitted, fact.started) == (FIRST_HALF_PAST_ONE, FIRST_HALF_PAST_ONE + 2400)


@pytest.mark.parametrize("end", ["2017-11-05T03:00:00", "Unknown"])
def test_a_key_is_the_same_while_the_job_runs_and_when_it_has_ended(tmp_path: Path, end: str) -> None:
    state = "RUNNING" if end == "Unknown" else "COMPLETED"
    fact = night(tmp_path, "2017-11-05T01:30:00", "2017-11-05T02:00:00", end, "3600", State=state)
    assert fact.source_key == f"4711@{FIRST_HALF_PAST_ONE}"


def test_a_running_job_whose_start_may_be_two_moments_waits_aside(tmp_path: Path) -> None:
    half_past = "2017-11-05T01:30:00"
    bad = rejected_row(tmp_path, half_past, half_past, "Unknown", "600", State="RUNNING")
    assert bad.code == "clock-change"
    assert "Import the row again when the job has ended." in bad.reason
    assert "TZ=UTC" not in bad.reason  # read in the cluster's zone it would be another job, hours away
    assert bad.source_key == ""


def test_a_waiting_job_whose_submission_may_be_two_moments_waits_aside(tmp_path: Path) -> None:
    bad = rejected_row(tmp_path, "2017-11-05T01:30:00", "Unknown", "Unknown", "0", State="PENDING")
    assert bad.code == "clock-change"


def test_two_lengths_and_no_elapsed_time_wait_aside(tmp_path: Path) -> None:
    bad = rejected_row(tmp_path, "2017-11-04T20:00:00", "2017-11-05T01:30:00", "2017-11-05T02:00:00", "")
    assert bad.code == "clock-change"


@pytest.mark.parametrize("column", ["Submit", "Start", "End"])
def test_an_hour_that_the_clocks_skipped_waits_aside(tmp_path: Path, column: str) -> None:
    times = {"Submit": "2017-03-12T01:00:00", "Start": "2017-03-12T01:30:00", "End": "2017-03-12T03:00:00"}
    bad = read_rows(
        tmp_path, row(**times | {column: "2017-03-12T02:30:00"}, ElapsedRaw="1800"), zone=LOS_ANGELES
    ).refused
    assert bad.code == "skipped-time"
    assert "America/Los_Angeles" in bad.reason


@pytest.mark.parametrize(
    "zone",
    ["UTC", "America/Los_Angeles", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Beirut"],
)
def test_every_moment_of_two_years_is_among_the_readings_of_its_own_text(zone: str) -> None:
    clock = Clock(ZoneInfo(zone))
    at, step = datetime(2017, 1, 1, tzinfo=UTC), timedelta(minutes=47)
    folds = 0
    while at.year < 2019:
        readings = clock.moments("Start", f"{at.astimezone(clock.zone):%Y-%m-%dT%H:%M:%S}")
        assert int(at.timestamp()) in readings
        folds += len(readings) == 2
        at += step
    assert bool(folds) == (zone not in {"UTC", "Asia/Kolkata"})


def test_times_that_there_are_not() -> None:
    clock = Clock(LOS_ANGELES)
    for text in ("", "Unknown", "None", "None assigned", "NONE ASSIGNED"):
        assert clock.moments("Start", text) == ()
    with pytest.raises(UnreadableError):
        clock.moments("Start", "2017-11-05 01:30:00")
    with pytest.raises(UnreadableError):
        clock.moments("Start", "2017-11-05T01:30:00Z")


def test_elapsed_time_rules_where_end_minus_start_disagrees(tmp_path: Path) -> None:
    export = read_rows(
        tmp_path,
        row(End="2026-01-05T08:40:00"),
        row(End="2026-01-05T08:00:00"),  # before Start
        row(),
    )
    assert [fact.ended for fact in export.facts] == [EIGHT + 4200] * 3
    assert export.reading.notes == [
        "2 rows whose End minus Start is not the elapsed time, which was counted from Start."
    ]


def test_without_an_elapsed_time_an_end_before_the_start_waits_aside(tmp_path: Path) -> None:
    assert (
        read_rows(tmp_path, row(ElapsedRaw="", End="2026-01-05T08:00:00")).refused.code == "end-before-start"
    )
    assert read_rows(tmp_path, row(ElapsedRaw="")).fact.ended == EIGHT + 4200


def test_suspended_seconds_lengthen_the_interval_and_are_told(tmp_path: Path) -> None:
    fact = read_rows(tmp_path, row(ElapsedRaw="3000", Suspended="00:10:00")).fact
    assert (fact.started, fact.ended, fact.suspended) == (EIGHT + 600, EIGHT + 4200, 600)


@pytest.mark.parametrize("end", ["Unknown", "2026-01-05T09:00:00"])  # some versions print a running End
def test_running_is_open_whatever_its_end_says(tmp_path: Path, end: str) -> None:
    export = read_rows(tmp_path, row(State="RUNNING", End=end, ElapsedRaw="3000", Suspended="00:05:00"))
    assert (export.fact.started, export.fact.ended) == (EIGHT + 600, None)
    assert export.fact.seen_until == EIGHT + 600 + 3000 + 300
    assert export.reading.proves_until == EIGHT + 600 + 3000 + 300


def test_the_newest_end_is_proof_unless_a_running_job_proves_more(tmp_path: Path) -> None:
    ended = row(End="2026-01-05T12:00:00", ElapsedRaw="13800")
    assert read_rows(tmp_path, ended, row()).reading.proves_until == EIGHT + 4 * 3600
    running = row(State="RUNNING", End="Unknown", ElapsedRaw="36000")
    assert read_rows(tmp_path, ended, running).reading.proves_until == EIGHT + 36_600
    assert (
        read_rows(
            tmp_path, row(State="PENDING", Start="Unknown", End="Unknown", ElapsedRaw="0")
        ).reading.proves_until
        is None
    )


@pytest.mark.parametrize("start", ["Unknown", "None assigned", "None"])
def test_a_job_cancelled_before_its_start_holds_its_resources_for_no_time(tmp_path: Path, start: str) -> None:
    fact = read_rows(tmp_path, row(State="CANCELLED by 1234", Start=start, ElapsedRaw="0")).fact
    assert (fact.started, fact.ended, fact.gpus, fact.state) == (EIGHT + 4200, EIGHT + 4200, 2, "CANCELLED")


def test_time_without_a_start_is_not_lost_silently(tmp_path: Path) -> None:
    assert read_rows(tmp_path, row(Start="Unknown")).refused.code == "no-start"
    assert (
        read_rows(tmp_path, row(State="RUNNING", Start="Unknown", End="Unknown")).refused.code == "no-start"
    )


def test_a_resized_job_is_counted_from_where_its_earlier_row_ended(tmp_path: Path) -> None:
    # 8 GPUs from 08:00 to 08:10, then 4 until 09:10; older Slurm gives the second row the first start
    export = read_rows(
        tmp_path,
        row(State="RESIZING", Start="2026-01-05T08:00:00", End="2026-01-05T08:10:00", ElapsedRaw="600"),
        row(Submit="2026-01-05T08:10:00", Start="2026-01-05T08:00:00", ElapsedRaw="4200"),
        row(Submit="2026-01-05T08:10:00", Start="2026-01-05T08:00:00", ElapsedRaw="3600"),
    )
    assert [(fact.started, fact.ended) for fact in export.facts] == [
        (EIGHT, EIGHT + 600),
        (EIGHT + 600, EIGHT + 4200),
        (EIGHT + 600, EIGHT + 4200),
    ]
    assert export.reading.notes == [
        "2 rows with a start before the submission (resized jobs), counted from the submission."
    ]
