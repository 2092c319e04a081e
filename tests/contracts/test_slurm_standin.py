"""The stand-in answers in the shapes that real slurmrestds were recorded with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from portal.env import ROOT
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurm_shapes import association, live_job
from tests.fakes.slurm_world import Job

RECORDED = ROOT.parent / "shared" / "fixtures" / "slurmrestd"

pytestmark = pytest.mark.skipif(
    not RECORDED.exists(), reason="Recorded answers are absent: put them at ../shared/fixtures/slurmrestd."
)
VERSIONS = [38, 40, 44]


def recorded(minor: int, name: str) -> list[dict[str, Any]]:
    payload = json.loads((RECORDED / f"v0.0.{minor}" / f"{name}.json").read_text(errors="replace"))
    rows: list[dict[str, Any]] = payload["jobs"] if "jobs" in payload else payload["associations"]
    return rows


def shape(value: Any) -> Any:
    """What kinds of values are where; numbers, texts and truths by their name, a list by its first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "nothing" if value is None else type(value).__name__


@pytest.mark.parametrize("minor", VERSIONS)
def test_an_account_and_its_limits(minor: int) -> None:
    world = a_world()
    speech = world.limits("speech")  # as bare as the recorded one
    speech.tres = {}
    speech.parent = ""
    ours = shape(association(speech, world, minor=minor, own_only=True))
    real = shape(next(row for row in recorded(minor, "slurmdb-associations") if row["account"] == "acme"))
    real.pop("parent_account"), ours.pop("parent_account")
    assert ours == real


@pytest.mark.parametrize("minor", VERSIONS)
def test_a_limit_on_gpus(minor: int) -> None:
    world = a_world()
    ours = association(world.limits("vision"), world, minor=minor, own_only=True)["max"]["tres"]["total"]
    (real,) = (
        row["max"]["tres"]["total"]
        for row in recorded(minor, "slurmdb-associations")
        if row["account"] == "initech" and not row["user"]
    )
    assert shape(ours) == shape(real)


@pytest.mark.parametrize("minor", VERSIONS)
@pytest.mark.parametrize(("number", "state"), [(25, "RUNNING"), (26, "PENDING")])
def test_a_job_that_lives(minor: int, number: int, state: str) -> None:
    ours = shape(
        live_job(Job(number, state=state, started=1_772_000_100 if state == "RUNNING" else 0), minor=minor)
    )
    real = shape(next(row for row in recorded(minor, "slurm-jobs") if row["job_id"] == number))
    assert {key: real.get(key) for key in ours} == ours
