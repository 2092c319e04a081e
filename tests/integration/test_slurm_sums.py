"""A real Slurm's set of jobs, pulled: the seconds and GPUs of each run are those that sacct prints."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from clusters.models import Quarantined, UsageRecord
from tests.builders import a_cluster, a_plan, a_tenant
from tests.integration.slurm_lab import Lab, until
from tests.integration.slurm_oracle import export, oracle
from tests.integration.slurm_pulls import (
    ACCOUNTS,
    come_to_agree,
    compare,
    connected,
    ledger,
    pull,
    record,
    run_seconds,
    runs_of,
)
from tests.stories import prove

SETTLING = 65  # seconds; a pull proves nothing of the last minute, and is to see something of what still runs

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.mark.sample
def test_each_run_is_recorded_with_the_seconds_and_gpus_that_sacct_prints(every_slurm: Lab) -> None:
    cluster = connected(every_slurm)
    a_tenant("acme", plan=a_plan(), accounts=[(cluster, account) for account in ACCOUNTS])
    every_slurm.has_rested(SETTLING)

    pull(cluster)

    rows = oracle(every_slurm, since=every_slurm.began)
    assert len(rows) >= 26
    compare(cluster, rows)
    assert not Quarantined.objects.exists()
    sums = prove()
    ended = sum(row.gpu_seconds for row in rows.values() if row.seconds is not None)
    open_runs = UsageRecord.objects.filter(started__isnull=False, ended=None)
    running = sum(run.gpus * ((run.seen_until or 0) - (run.started or 0)) for run in open_runs)
    assert running > 0
    assert sums["allocated"] == ended + running


def test_a_file_of_sacct_brings_the_same_records_as_a_pull(every_slurm: Lab, tmp_path: Path) -> None:
    """Under the same keys too: a cluster can go from files to slurmrestd and back."""
    by_rest, by_file = connected(every_slurm), a_cluster("by-file")
    differing_fields = {"exit_code", "requested"}  # v0.0.38 tells neither as sacct does

    def both() -> tuple[dict[str, Any], dict[str, Any]]:
        pull(by_rest)
        rows = export(every_slurm, tmp_path / "lab.sacct", since=every_slurm.began)
        call_command("import_usage", "by-file", rows, "--json")
        pulled, imported = (ledger(source, without=differing_fields) for source in (by_rest, by_file))
        for row in (*pulled.values(), *imported.values()):
            if row["node_list"] == "None assigned":
                # Of what was cancelled before it began sacct prints 0, and REST what was asked.
                del row["nodes"], row["cpu_milli"]
        return pulled, imported

    come_to_agree(both)


def test_what_became_of_each_kind_of_job(every_slurm: Lab) -> None:
    cluster = connected(every_slurm)
    pull(cluster)
    jobs = every_slurm.labels()

    (suspended,) = runs_of(cluster, jobs["suspended"])
    assert suspended.suspended > 0
    assert run_seconds(suspended) == suspended.ended - suspended.started - suspended.suspended  # type: ignore[operator]

    first, second = runs_of(cluster, jobs["requeued"])
    assert (first.gpus, second.gpus) == (1, 1)
    assert first.submitted != second.submitted
    assert (run_seconds(first) or 0) > 0

    stopped, again = runs_of(cluster, jobs["spot-preempted"])
    assert (stopped.state, again.state) == ("PREEMPTED", "COMPLETED")
    assert (stopped.gpus, stopped.gpu_model, stopped.nodes, stopped.qos) == (8, "a100", 2, "spot")

    (failed,) = runs_of(cluster, jobs["node-fail"])
    assert (failed.state, failed.gpus) == ("NODE_FAIL", 3)
    assert (run_seconds(failed) or 0) > 0

    tasks = [runs_of(cluster, f"{jobs['array']}_{task}")[0] for task in range(5)]
    assert {task.gpus for task in tasks} == {1}
    assert [task.state for task in tasks] == ["COMPLETED", "COMPLETED", "FAILED", "COMPLETED", "COMPLETED"]

    parts = [runs_of(cluster, f"{jobs['het']}+{part}")[0] for part in (0, 1)]
    assert [(part.queue, part.gpus) for part in parts] == [("cpu", 0), ("h100", 2)]

    (untyped,) = runs_of(cluster, jobs["gpu-untyped"])
    assert (untyped.gpus, untyped.gpu_model) == (2, "h100")

    (zero,) = runs_of(cluster, jobs["zero-seconds"])
    assert (zero.gpus, zero.state) == (0, "COMPLETED")
    assert (run_seconds(zero) or 0) <= 2

    assert (
        runs_of(cluster, jobs["cancelled-pending"]) == []
    )  # it never became eligible: sacct has no row of it either

    (running,) = runs_of(cluster, jobs["still-running"])
    assert (running.state, running.gpus, running.ended) == ("RUNNING", 2, None)
    (waiting,) = runs_of(cluster, jobs["still-pending"])
    assert (waiting.state, waiting.started, waiting.ended) == ("PENDING", None, None)


def test_a_job_that_gives_a_node_back_is_two_runs_which_do_not_overlap(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab, first_usage_from=None)
    job = slurm_lab.submits(
        "ben", "acme_prod", "sleep 6", "-p", "a100", "-N2", "-n2", "--gres=gpu:a100:4", "-J", "resized"
    )
    until(lambda: "RUNNING" in slurm_lab.slurm("scontrol", "-o", "show", "job", job))
    began = int(time.time())
    time.sleep(2)
    slurm_lab.slurm("scontrol", "update", f"jobid={job}", "NumNodes=1")
    pull(cluster)
    slurm_lab.has_ended(job)

    pull(cluster)

    larger, smaller = runs_of(cluster, job)
    assert (larger.gpus, smaller.gpus) == (8, 4)
    assert larger.ended is not None
    assert smaller.started is not None
    assert larger.ended <= smaller.started
    expected = oracle(slurm_lab, since=began - 60)
    resized_runs = {key: row for key, row in expected.items() if row.name == "resized"}
    assert len(resized_runs) == 2
    ends = [record(cluster, key).ended for key in resized_runs]
    assert max(end for end in ends if end) - (larger.started or 0) == sum(
        run_seconds(run) or 0 for run in (larger, smaller)
    )
