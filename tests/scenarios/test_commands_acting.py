"""Op at the shell: previewed first, done with --yes, and told in one JSON object for programs."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command

from clusters.models import Act
from portal.ops.cli import BadInputError, RefusedError
from tests.builders import a_cluster
from tests.fakes.scheduler_port import a_world, connected, has_no_patience
from tests.fakes.slurm_world import Job
from tests.fakes.slurmrestd import StandIn

pytestmark = pytest.mark.django_db


@pytest.fixture
def slurm() -> Iterator[StandIn]:
    """gpu1 is connected; Ben has one job that waits in vision and one that runs."""
    with StandIn(44, world=a_world()) as slurm:
        slurm.world.add(Job(11), Job(12, state="RUNNING", reason="None", started=1_772_000_100))
        connected(slurm)
        yield slurm


def text_of(*command: str) -> tuple[str, int]:
    """What it printed, and its exit code."""
    out = io.StringIO()
    try:
        call_command(*command, stdout=out)
    except SystemExit as ended:
        return out.getvalue(), int(ended.code or 0)
    return out.getvalue(), 0


def answer_of(*command: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(text_of(*command, "--json")[0])
    return answer


def test_a_preview_names_its_plan_and_changes_nothing(slurm: StandIn) -> None:
    out, code = text_of("hold_jobs", "gpu1", "vision")
    plan = answer_of("hold_jobs", "gpu1", "vision")["plan"]
    assert out == (
        f"Hold job 11 of ben in vision.\nNothing was done yet: this is plan {plan}; --yes carries it out.\n"
    )
    assert code == 0
    assert slurm.writes() == []


def test_with_yes_it_is_done_and_kept_with_who_and_why(slurm: StandIn) -> None:
    out, code = text_of("hold_jobs", "gpu1", "vision", "--yes", "--why", "budget used up")
    assert (out, code) == ("Done: Hold job 11 of ben in vision.\n", 0)
    act = Act.objects.get()
    assert act.who.endswith(" at the shell")
    assert act.why == "budget used up"
    assert slurm.world.jobs[11].reason == "JobHeldAdmin"
    assert text_of("release_jobs", "gpu1", "vision", "--yes")[0] == "Done: Release job 11 of ben in vision.\n"
    assert slurm.world.jobs[11].reason == "None"
    assert text_of("hold_jobs", "gpu1", "nobody")[0] == "No job of nobody waits that could be held.\n"


def test_a_program_reads_what_was_done(slurm: StandIn) -> None:
    preview = answer_of("cancel_job", "gpu1", "12")
    assert preview["steps"][0]["outcome"] is None
    done = answer_of("cancel_job", "gpu1", "12", "--yes", "--plan", preview["plan"])
    assert done == {
        "cluster": "gpu1",
        "kind": "cancel",
        "plan": preview["plan"],
        "carried_out": True,
        "steps": [
            {
                "target": "job 12@1772000000",
                "words": "Cancel job 12 of ben in vision (train), which is running.",
                "outcome": "done",
                "act": Act.objects.get().pk,
                "error": "",
            }
        ],
        "notes": [],
    }


def test_another_plan_than_the_previewed_one_is_refused(slurm: StandIn) -> None:
    plan = answer_of("block_account", "gpu1", "vision")["plan"]
    slurm.world.limits("vision").tres["total"]["gres/gpu"] = 4
    with pytest.raises(RefusedError, match="look at it again without --yes"):
        text_of("block_account", "gpu1", "vision", "--yes", "--plan", plan)
    assert slurm.writes() == []


def test_a_job_that_starts_before_it_is_looked_at_again_is_told_as_left_out(slurm: StandIn) -> None:
    slurm.world.add(Job(13))
    looked = []

    def starts(request: str) -> None:
        looked.append(request)
        if looked.count("GET /slurm/v0.0.44/jobs") == 1:
            slurm.world.jobs[11].state = "RUNNING"

    slurm.after = starts
    steps = answer_of("hold_jobs", "gpu1", "vision", "--yes")["steps"]
    assert [(step["target"], step["outcome"]) for step in steps] == [
        ("job 13@1772000000", "done"),
        ("job 11@1772000000", "left out"),
    ]
    assert steps[1]["error"] == "It has started, ended or been held meanwhile."


def test_an_account_is_blocked_and_unblocked(slurm: StandIn) -> None:
    text_of("block_account", "gpu1", "vision", "--submit", "--yes")
    assert slurm.world.limits("vision").tres["total"]["gres/gpu"] == 0
    assert slurm.world.limits("vision").jobs["per.submitted"] == 0
    assert "GrpTRES=gres/gpu: 0 → 8" in text_of("unblock_account", "gpu1", "vision", "--yes")[0]
    assert slurm.world.limits("vision").tres["total"]["gres/gpu"] == 8


def test_what_failed_is_told_and_exits_with_1(slurm: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    has_no_patience(monkeypatch)
    slurm.world.deaf = True
    out, code = text_of("cancel_job", "gpu1", "12", "--yes")
    assert code == 1
    assert out.startswith(
        "Failed: Cancel job 12 of ben in vision (train), which is running. Job 12 was cancelled and"
    )


def test_what_cannot_be_meant(slurm: StandIn) -> None:
    with pytest.raises(BadInputError, match="There is no cluster 'gpu9'; known: gpu1"):
        text_of("cancel_job", "gpu9", "12")
    with pytest.raises(BadInputError, match="'12_3' is not a job's number"):
        text_of("cancel_job", "gpu1", "12_3")
    with pytest.raises(BadInputError, match=r"'9{79}…' is not a job's number"):
        text_of("cancel_job", "gpu1", "9" * 5000)
    a_cluster("files")
    with pytest.raises(RefusedError, match="files has no connection to a Slurm"):
        text_of("hold_jobs", "files", "vision")


def test_the_connection_is_tested(slurm: StandIn) -> None:
    slurm.now = int(time.time())
    out, code = text_of("test_connection", "gpu1")
    assert code == 0
    assert "ok    AdminLevel: portal has AdminLevel Operator" in out
    answer = answer_of("test_connection", "gpu1")
    assert (answer["cluster"], answer["ok"]) == ("gpu1", True)
    assert set(answer["findings"][0]) == {"level", "subject", "sentence", "mend"}

    slurm.world.admins["portal"] = "None"
    out, code = text_of("test_connection", "gpu1")
    assert code == 1
    assert "      mend: sacctmgr modify user portal set adminlevel=Operator\n" in out


def test_a_cluster_without_a_connection_fails_its_test() -> None:
    a_cluster("files")
    out, code = text_of("test_connection", "files")
    assert (out.startswith("FAIL  Connection: files has no connection to a Slurm"), code) == (True, 1)
