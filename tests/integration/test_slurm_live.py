"""Jobs of a real Slurm that run, wait, stop and go away while they are watched."""

from __future__ import annotations

import time

import pytest

from clusters.models import UsageRecord
from tests.builders import a_plan, a_tenant
from tests.integration.slurm_lab import Lab
from tests.integration.slurm_oracle import oracle
from tests.integration.slurm_pulls import connected, pull, record, run_seconds, runs_of
from tests.scenarios.configuring import run_json
from tests.stories import prove, seconds

pytestmark = pytest.mark.usefixtures("transactional_db")


def test_a_job_is_seen_waiting_running_and_cancelled(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    ada = a_tenant("ada", plan=a_plan(), accounts=[(cluster, "acme_research")])
    pull(cluster)
    before = int(seconds(ada))
    job = slurm_lab.submits(
        "ada", "acme_research", "sleep 300", "-p", "h100", "--gres=gpu:h100:3", "--begin=now+10"
    )
    slurm_lab.knows(job, "PENDING")
    pull(cluster)
    (waiting,) = runs_of(cluster, job)
    assert (waiting.started, waiting.ended, waiting.gpus) == (None, None, 0)

    slurm_lab.knows(job, "RUNNING")
    pull(cluster)
    (running,) = runs_of(cluster, job)
    assert (running.state, running.gpus, running.ended) == ("RUNNING", 3, None)

    slurm_lab.slurm("scancel", job)
    slurm_lab.has_ended(job)
    pull(cluster)

    (cancelled,) = runs_of(cluster, job)
    expected = oracle(slurm_lab, since=slurm_lab.began)[cancelled.source_key]
    assert (cancelled.state, cancelled.gpus, run_seconds(cancelled)) == ("CANCELLED", 3, expected.seconds)
    assert seconds(ada) - before == expected.gpu_seconds
    prove()


def test_suspended_seconds_are_not_billed_while_it_runs_nor_after(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    job = slurm_lab.submits("ben", "acme_prod", "sleep 3", "-p", "cpu")
    slurm_lab.is_running(job)
    slurm_lab.slurm("scontrol", "suspend", job)
    time.sleep(3)
    slurm_lab.knows(job, "SUSPENDED")
    pull(cluster)
    slurm_lab.slurm("scontrol", "resume", job)
    slurm_lab.has_ended(job)
    pull(cluster)

    (run,) = runs_of(cluster, job)
    assert run.suspended >= 3
    assert run_seconds(run) == oracle(slurm_lab, since=slurm_lab.began)[run.source_key].seconds
    compared = run_json("prove", "--live", "--cluster", cluster.name, "--hours", "1")["source"]
    assert (compared["facts"] > 0, compared["differing"]) == (True, 0)


def test_a_run_that_slurm_forgot_is_flagged_and_not_billed_on(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    job = slurm_lab.submits("cyd", "globex", "sleep 300", "-p", "h100", "--gres=gpu:h100:1")
    slurm_lab.knows(job, "RUNNING")
    cyd = a_tenant("cyd", plan=a_plan(), accounts=[(cluster, "globex")])
    pull(cluster)
    (run,) = runs_of(cluster, job)
    billed = seconds(cyd)

    hidden = int(job) + 900_000_000  # a row that never became eligible comes in no window
    slurm_lab.does(
        "sql",
        stdin="UPDATE lab_job_table SET mod_time = time_eligible, time_eligible = 0, "
        f"id_job = {hidden} WHERE id_job = {job} AND time_end = 0",
    )
    try:
        time.sleep(2)
        counts = pull(cluster)
        assert counts["vanished"] == 1
        assert pull(cluster)["vanished"] == 0  # it is told once
        stored = record(cluster, run.source_key)
        assert (stored.ended, stored.seen_until) == (None, run.seen_until)
        assert hasattr(stored, "vanished")
    finally:
        slurm_lab.does(
            "sql",
            stdin=f"UPDATE lab_job_table SET time_eligible = mod_time, id_job = {job} WHERE id_job = {hidden}",
        )
    counts = pull(cluster)
    assert counts["healed"] == 1
    assert seconds(cyd) >= billed

    slurm_lab.slurm("scancel", job)
    slurm_lab.has_ended(job)
    pull(cluster)
    stored = record(cluster, run.source_key)
    assert run_seconds(stored) == oracle(slurm_lab, since=slurm_lab.began)[run.source_key].seconds
    assert UsageRecord.objects.filter(vanished__isnull=False).count() == 0
    prove()
