"""Runs that are open: moved on as far as Slurm itself says and slurmctld confirms, never beyond."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusters.connectors.base import ConnectorError, Reading, Row, UsageFact
from tests.contracts.slurm_recorded import NOW, Reply, Slurm, a_job, connector, facts, live_jobs, serving

BEGAN = NOW - 600
KEY = f"7@{BEGAN}"


def a_running(number: int = 7, *, submit: int = BEGAN, **time: int) -> dict[str, Any]:
    job = a_job(number, submit=submit, start=submit)
    job["time"] |= {"elapsed": 590, **time}
    return job


def read_from(
    slurm: Slurm, *, since: int = NOW - 3600, until: int = NOW, open_keys: Any = ()
) -> tuple[dict[str, UsageFact], Reading]:
    with serving(slurm) as address:
        source = connector(address, now=NOW)
        return facts(list(source.usage(since=since, until=until, open_keys=open_keys))), source.reading


def test_a_running_job_is_seen_as_long_as_slurm_says_that_it_runs() -> None:
    facts_by_key, reading = read_from(Slurm(jobs=[a_running()], live=live_jobs((7, BEGAN, "RUNNING"))))
    assert facts_by_key[KEY].ended is None
    assert facts_by_key[KEY].seen_until == BEGAN + 590
    assert reading.missing == []
    assert reading.complete_through == NOW - 60


def test_suspended_seconds_are_within_what_was_seen() -> None:
    job = a_running(elapsed=400, suspended=190)
    facts_by_key, _ = read_from(Slurm(jobs=[job], live=live_jobs((7, BEGAN, "SUSPENDED"))))
    assert (facts_by_key[KEY].seen_until, facts_by_key[KEY].suspended) == (BEGAN + 590, 190)


def test_no_run_is_seen_in_the_future_by_a_clock_of_slurmdbd_that_is_ahead() -> None:
    slurm = Slurm(jobs=[a_running(elapsed=86_400)], live=live_jobs((7, BEGAN, "RUNNING")))
    assert read_from(slurm)[0][KEY].seen_until == NOW


def test_a_job_that_slurmctld_has_forgotten_counts_no_further_and_is_named() -> None:
    facts_by_key, reading = read_from(Slurm(jobs=[a_running(suspended=30)], live=live_jobs()))
    assert facts_by_key[KEY].ended is None
    assert (facts_by_key[KEY].seen_until, facts_by_key[KEY].suspended) == (
        BEGAN + 30,
        30,
    )  # no second is held
    assert reading.missing == [KEY]
    assert "unknown to slurmctld (7)" in reading.notes[0]
    assert "sacctmgr show runawayjobs" in reading.notes[0]
    assert reading.complete_through == NOW - 60


def test_another_job_with_the_same_id_confirms_nothing() -> None:
    facts_by_key, reading = read_from(Slurm(jobs=[a_running()], live=live_jobs((7, BEGAN + 300, "RUNNING"))))
    assert facts_by_key[KEY].seen_until == BEGAN
    assert reading.missing == [KEY]


def test_a_resized_job_is_the_one_that_slurmctld_knows_by_its_first_submission() -> None:
    job = a_running(submit=BEGAN)
    job["time"] |= {"start": BEGAN - 400, "elapsed": 990}  # 22.05 gives the second row the first start
    facts_by_key, reading = read_from(Slurm(jobs=[job], live=live_jobs((7, BEGAN - 400, "RUNNING"))))
    assert (facts_by_key[KEY].started, facts_by_key[KEY].seen_until) == (BEGAN, BEGAN + 590)
    assert "resized" in reading.notes[0]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("first", [BEGAN - 400, BEGAN])
def test_of_two_open_rows_of_one_job_only_the_latest_moves_on(first: int, order: int) -> None:
    """The end of the row from before a resize was lost: both would count the same GPUs."""
    jobs = [a_running(submit=BEGAN - 400, elapsed=990), a_running()]
    facts_by_key, reading = read_from(Slurm(jobs=jobs[::order], live=live_jobs((7, first, "RUNNING"))))
    earlier = f"7@{BEGAN - 400}"
    assert (facts_by_key[KEY].seen_until, facts_by_key[earlier].seen_until) == (BEGAN + 590, BEGAN - 400)
    assert reading.missing == [earlier]
    assert reading.complete_through == NOW - 60
    if first < BEGAN:
        assert (
            f"only the latest goes on, and nothing more is counted for the earlier ({earlier}), whose end was lost"
            in reading.notes[0]
        )


@pytest.mark.parametrize("state", ["COMPLETED", "PENDING", "NODE_FAIL"])
def test_a_job_whose_end_is_not_recorded_yet_waits_for_it(state: str) -> None:
    facts_by_key, reading = read_from(Slurm(jobs=[a_running()], live=live_jobs((7, BEGAN, state))))
    assert (facts_by_key[KEY].ended, facts_by_key[KEY].seen_until) == (None, BEGAN)
    assert reading.missing == []


def test_a_waiting_job_is_given_without_a_start() -> None:
    waiting = {**a_job(8, submit=BEGAN), "state": {"current": ["PENDING"]}}
    fact = read_from(Slurm(jobs=[waiting]))[0][f"8@{BEGAN}"]
    assert (fact.started, fact.ended, fact.seen_until, fact.state) == (None, None, None, "PENDING")


def test_an_open_run_that_no_window_had_is_asked_for_by_its_id() -> None:
    ended_early = a_job(5, submit=NOW - 90_000, start=NOW - 90_000, end=NOW - 80_000)
    again = a_job(5, submit=NOW - 50_000, start=NOW - 50_000, end=NOW - 49_000)  # the id was used twice
    slurm = Slurm(jobs=[ended_early, again])
    facts_by_key, reading = read_from(slurm, open_keys=[f"5@{NOW - 90_000}", "999@5", "not-a-key"])
    assert list(facts_by_key) == [f"5@{NOW - 90_000}"]
    assert facts_by_key[f"5@{NOW - 90_000}"].ended == NOW - 80_000
    assert sorted(reading.missing) == ["999@5", "not-a-key"]
    assert sorted(path for path, _ in slurm.requests if "/job/" in path) == [
        "/slurmdb/v0.0.42/job/5",
        "/slurmdb/v0.0.42/job/999",
    ]


def test_many_lost_runs_are_asked_for_over_several_passes() -> None:
    slurm = Slurm()
    _, reading = read_from(slurm, open_keys=[f"{number}@5" for number in range(1, 701)])
    assert len(reading.missing) == 500
    assert len({*reading.missing, *reading.unasked}) == 700
    assert "500 of them were asked for one by one" in reading.notes[0]


def test_an_array_of_which_there_is_too_much_costs_only_the_asking() -> None:
    """Its number brings all of its tasks, and its owner can put what is left of it off for ever."""
    ended = a_job(5, submit=NOW - 3000, start=NOW - 3000, end=NOW - 2000)
    slurm = Slurm(jobs=[ended])
    for number in range(100, 110):
        slurm.replies[f"/slurmdb/v0.0.42/job/{number}"] = Reply(body=b'{"jobs":[' + b" " * 2_000_000 + b"]}")
    keys = [f"{number}@{NOW - 9000}" for number in range(100, 110)]
    with serving(slurm) as address:
        source = connector(address, now=NOW)
        source.rest.http.largest = 1_000_000
        rows = list(source.usage(since=NOW - 3600, until=NOW, open_keys=keys))
    assert [row.source_key for row in rows] == [f"5@{NOW - 3000}"]
    assert (sorted(source.reading.unasked), source.reading.missing) == (keys, [])
    assert len([path for path, _ in slurm.requests if "/job/" in path]) == 1
    assert "in no window, was not read" in source.reading.notes[0]
    assert source.reading.complete_through == NOW - 60


def test_a_run_that_ends_between_two_windows_with_an_end_before_both_is_found() -> None:
    """slurmdbd was down: the row was open as the first window was read, and then ended within it."""
    open_then = a_running(submit=NOW - 7000)
    ended = a_job(7, submit=NOW - 7000, start=NOW - 7000, end=NOW - 6000)
    slurm = Slurm(jobs=[open_then])

    def once(query: dict[str, str]) -> Reply | None:
        if len([path for path, _ in slurm.requests if path == "/slurmdb/v0.0.42/jobs"]) > 1:
            slurm.jobs = [ended]
        return None

    slurm.replies["/slurmdb/v0.0.42/jobs"] = once
    facts_by_key, _ = read_from(slurm, since=NOW - 7200)
    assert facts_by_key[f"7@{NOW - 7000}"].ended == NOW - 6000


def test_a_window_of_the_past_gives_what_ran_on_and_claims_no_more_than_it_read() -> None:
    jobs = [
        a_job(1, submit=NOW - 50_000, start=NOW - 50_000, end=NOW - 45_000),
        a_job(2, submit=NOW - 50_000, start=NOW - 50_000, end=NOW - 100),
        a_running(3, submit=NOW - 50_000, elapsed=49_000),
        a_job(4, submit=NOW - 20_000, start=NOW - 20_000, end=NOW - 100),
    ]
    slurm = Slurm(jobs=jobs, live=live_jobs((3, NOW - 50_000, "RUNNING")))
    facts_by_key, reading = read_from(slurm, since=NOW - 48_000, until=NOW - 30_000)
    assert sorted(fact.job_id for fact in facts_by_key.values()) == ["1", "2", "3"]
    assert reading.complete_through == NOW - 30_000
    assert max(query["end_time"] for _, query in slurm.requests if query) == f"uts{NOW - 30_000}"


def test_a_pass_that_fails_in_its_middle_proves_nothing_and_heals_by_itself() -> None:
    jobs = [
        a_job(n, submit=NOW - 40_000 + n, start=NOW - 40_000 + n, end=NOW - 36_000 + 3000 * n)
        for n in range(9)
    ]
    slurm = Slurm(jobs=jobs[1:])

    def failing(query: dict[str, str]) -> Reply | None:
        late = int(query["end_time"][3:]) > NOW - 20_000
        return Reply(502, b"<html>", "text/html") if late else None

    slurm.replies["/slurmdb/v0.0.42/jobs"] = failing
    with serving(slurm) as address:
        source = connector(address, now=NOW)
        before: list[Row] = []
        with pytest.raises(ConnectorError):
            before.extend(source.usage(since=NOW - 40_000, until=NOW, open_keys=()))
        failed = source.reading
        slurm.replies.clear()
        after = facts(list(source.usage(since=NOW - 40_000, until=NOW, open_keys=())))
    assert failed.complete_through is None
    assert source.reading.complete_through == NOW - 60
    assert before
    assert len(after) == 8
    assert set(facts(before)) < set(after)


def a_live(number: int, *, began: int, state: str = "RUNNING") -> bytes:
    instant = {"set": True, "number": began}
    job = {"job_id": number, "submit_time": instant, "start_time": instant, "job_state": [state]}
    return json.dumps({"jobs": [job], "errors": []}).encode()


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED"])
def test_what_slurmctld_could_not_hand_over_to_slurmdbd_yet_holds_the_watermark(state: str) -> None:
    """slurmdbd answers, and knows nothing of the last two hours: what ended in them comes when it is told."""
    waiting = {**a_job(9, submit=NOW - 7300), "state": {"current": ["PENDING"]}}
    for jobs in ([], [waiting], [a_job(9, submit=NOW - 9000, start=NOW - 8900, end=NOW - 8800)]):
        slurm = Slurm(jobs=jobs, live=a_live(9, began=NOW - 7200, state=state))
        _, reading = read_from(slurm, since=NOW - 10_800)
        assert reading.complete_through is None
        assert "Job 9 runs and slurmdbd has not been told so" in reading.notes[-1]
        assert "sdiag" in reading.notes[-1]


def test_a_run_that_slurmdbd_knows_or_that_began_just_now_holds_nothing() -> None:
    unreadable = a_running()
    unreadable["tres"]["allocated"].append({"type": "gres", "name": "gpu:9g.10gb", "count": 1})
    for jobs, began in (([a_running()], NOW - 3500), ([unreadable], NOW - 3500), ([], NOW - 590)):
        slurm = Slurm(jobs=jobs, live=a_live(7, began=began))
        with serving(slurm) as address:
            source = connector(address, now=NOW)
            assert len(list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))) == len(jobs)
        assert source.reading.complete_through == NOW - 60
    _, reading = read_from(Slurm(live=a_live(7, began=NOW - 3500)), since=NOW - 7200, until=NOW - 3600)
    assert reading.complete_through == NOW - 3600  # it began after the window
    _, reading = read_from(Slurm(live=a_live(7, began=NOW - 3500, state="COMPLETING")))
    assert reading.complete_through == NOW - 60
