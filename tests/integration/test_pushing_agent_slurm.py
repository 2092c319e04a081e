"""The agent runs the `sacct` of a real Slurm: what it pushes is what an import of the same command's output has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.connectors.sacct.layout import COMMAND
from clusters.models import Cluster, UsageRecord
from tests.integration.agents import Agent, an_operators_key, ledger, seconds
from tests.integration.slurm_lab import Lab
from tests.integration.test_pushing_agent import Twins
from tests.integration.web_process import WebProcess
from tests.stories import prove

pytestmark = pytest.mark.usefixtures("transactional_db")

SEEN_UNTIL = -4  # of a record's columns
ACCOUNTS = ("acme_research", "acme_prod", "globex", "initech", "acme", "root")
SACCT = (
    *("sacct", "--allusers", "--allocations", "--duplicates", "--parsable2", "--starttime", "now-3days"),
    COMMAND.rpartition(" ")[2],  # the columns that the reference prescribes
)


@pytest.fixture
def web(database_url: str, tmp_path: Path) -> Iterator[WebProcess]:
    with WebProcess(database_url, tmp_path) as process:
        yield process


def an_agent(lab: Lab, home: Path, url: str) -> Agent:
    agent = Agent(home, url, an_operators_key(), sacct={"command": "sacct", "lag_seconds": 0})
    agent.environ = os.environ | {"SLURM_CONF": str(lab.dir / "etc" / "slurm.conf")}
    return agent


def without_growth(cluster: Cluster) -> list[tuple[Any, ...]]:
    """The records, without how far those that run had been seen: the two looks are seconds apart."""
    return [(*row[:SEEN_UNTIL], *row[SEEN_UNTIL + 1 :]) for row in ledger(cluster)]


def test_all_kinds_of_jobs_of_a_real_slurm_are_billed_as_by_import(
    slurm_lab: Lab, web: WebProcess, tmp_path: Path
) -> None:
    twins = Twins(*ACCOUNTS)
    agent = an_agent(slurm_lab, tmp_path / "agent", web.url)
    slurm_lab.has_rested(3)
    assert "sacct prints the columns" in agent.does("--check")
    began = int(time.time())
    agent.does("--once")
    file = tmp_path / "export.sacct"
    file.write_text(slurm_lab.slurm(*SACCT))
    running = UsageRecord.objects.filter(cluster__name="own", ended=None).exclude(started=None)
    assert running.exists()  # the lab has one that goes on
    twins.imports(file)
    assert without_growth(twins.pushed[0]) == without_growth(twins.imported[0])
    assert len(ledger(twins.pushed[0])) > 20
    assert seconds(twins.pushed[1]) != []
    assert all(began - 2 <= (run.seen_until or 0) <= time.time() for run in running)
    assert twins.watermark >= began
    prove()


def test_a_job_is_pushed_while_it_waits_and_runs_and_when_it_has_ended(
    slurm_lab: Lab, web: WebProcess, tmp_path: Path
) -> None:
    Twins(*ACCOUNTS)
    agent = an_agent(slurm_lab, tmp_path / "agent", web.url)
    job = slurm_lab.submits("ada", "acme_research", "sleep 300", "-p", "h100", "--gres=gpu:h100:3")
    slurm_lab.knows(job, "RUNNING")
    agent.does("--once")
    (running,) = UsageRecord.objects.filter(cluster__name="own", job_id=job)
    assert (running.state, running.gpus, running.gpu_model, running.ended) == ("RUNNING", 3, "h100", None)
    slurm_lab.slurm("scancel", job)
    slurm_lab.has_ended(job)
    said = agent.does("--once")
    assert "rejected" not in said
    (ended,) = UsageRecord.objects.filter(cluster__name="own", job_id=job)
    elapsed, state = slurm_lab.slurm("sacct", "-nXPD", "-j", job, "-o", "ElapsedRaw,State").strip().split("|")
    assert ended.started is not None
    assert ended.ended is not None, said
    assert (ended.ended - ended.started, ended.state) == (int(elapsed), state.split()[0])
    prove()
