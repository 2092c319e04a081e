"""A real Grid Engine's accounting, written by its own daemons, against what its own qacct says of the same jobs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from clusters.connectors.accounting.formats import open_export
from clusters.connectors.base import BadRow, UsageFact
from tests.contracts.sacct_exports import UTC

LAB = Path(__file__).with_name("grid_engine_lab")
PATIENCE = 240  # seconds
PACKAGES = ("sge_qmaster", "sge_execd", "qsub", "qacct")


@pytest.fixture(scope="module")
def lab() -> Iterator[Path]:
    """A directory with `accounting`, `qacct` and `jobs` of a lab that ran and ended."""
    if os.geteuid() != 0 or not all(map(shutil.which, PACKAGES)):
        pytest.skip(
            "No Grid Engine here: on Debian 12, as root, apt-get install gridengine-master gridengine-exec "
            "gridengine-client"
        )
    with TemporaryDirectory(
        prefix="grid-engine-"
    ) as name:  # where its daemons, which are another user, may look
        folder = Path(name)
        done = subprocess.run([LAB, folder], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr[-2000:]
        yield folder


def qacct(folder: Path) -> list[dict[str, str]]:
    blocks = re.split(r"^=+$", (folder / "qacct").read_text(), flags=re.MULTILINE)[1:]
    return [
        dict(line.split(None, 1) for line in block.splitlines() if len(line.split(None, 1)) == 2)
        for block in blocks
    ]


def test_every_run_of_a_real_grid_engine_is_what_its_own_qacct_says(lab: Path) -> None:
    rows = list(open_export(lab / "accounting", "grid-engine", zone=UTC).rows())
    facts = [row for row in rows if isinstance(row, UsageFact)]
    jobs = dict(line.split() for line in (lab / "jobs").read_text().splitlines())
    told = {
        (row["jobnumber"].strip(), row["taskid"].strip()): row
        for row in qacct(lab)
        if row["failed"].split()[0] != "25"
    }
    assert len(facts) == len(told) >= 8
    for fact in facts:
        job, _, task = fact.job_id.partition(".")
        row = told[job, task or "undefined"]
        assert fact.ended is not None
        assert fact.started is not None
        assert (
            f"{fact.ended - fact.started}" == row["ru_wallclock"].strip().removesuffix("s")
            or row["failed"].strip() != "0"
        )
        assert (fact.user, fact.name, fact.cpu_milli) == (
            row["owner"].strip(), row["jobname"].strip(), int(row["slots"]) * 1000,
        )  # fmt: skip
        assert fact.exit_code == row["exit_status"].split()[0]
    by_name = {
        name: [fact for fact in facts if fact.job_id.partition(".")[0] == job] for name, job in jobs.items()
    }
    assert [(fact.account, fact.gpus) for fact in by_name["plain"]] == [("vision", 2)]
    assert [(fact.job_id.partition(".")[2], fact.gpus) for fact in by_name["array"]] == [
        ("1", 1),
        ("2", 1),
        ("3", 1),
    ]
    assert [(fact.gpus, fact.cpu_milli) for fact in by_name["parallel"]] == [(1, 4000)]
    assert [fact.exit_code for fact in by_name["failed"]] == ["1"]
    assert [fact.account for fact in by_name["account"]] == ["grant-7"]
    assert by_name["waits"] == []  # it was deleted before it began
    assert [(fact.state, fact.exit_code) for fact in by_name["killed"]] == [("FAILED", "137")]


def test_a_run_that_was_rescheduled_without_times_is_held_for_review(lab: Path) -> None:
    jobs = dict(line.split() for line in (lab / "jobs").read_text().splitlines())
    bad = [
        row
        for row in open_export(lab / "accounting", "grid-engine", zone=UTC).rows()
        if isinstance(row, BadRow)
    ]
    assert [row.code for row in bad] == ["grid-engine-rescheduled"]
    assert jobs["again"] in bad[0].reason
