"""Kill -9 while the rows of a sealed month are dropped and loaded back: no row is lost or doubled."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from billing.models import RatedJob, RatedUsage, SealedMonth
from billing.proof import checks
from billing.sealed_months.verify import prove_files
from clusters.models import UsageRecord
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.integration.operators import Operator
from tests.owner import as_owner
from tests.stories import close, prove

pytestmark = pytest.mark.usefixtures("transactional_db")

JOBS = 900
MARCH = date(2024, 3, 1)
DROP = ("drop_month", "2024-03", "--all-processes-replaced", "--yes")
LOAD = ("drop_month", "2024-03", "--load", "--yes")


def counts() -> tuple[int, int, int]:
    return UsageRecord.objects.count(), RatedJob.objects.count(), RatedUsage.objects.count()


def is_dropped() -> bool:
    return SealedMonth.objects.get(month=MARCH).dropped_at is not None


@pytest.mark.parametrize(
    ("seed", "kills"), [(0, 6), *(pytest.param(seed, 10, marks=pytest.mark.long) for seed in range(1, 6))]
)
def test_a_month_is_dropped_or_not_however_often_it_is_killed_and_an_import_corrects_it_once(
    seed: int, kills: int, database_url: str, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEALED_MONTHS_DIRECTORY", str(tmp_path / "sealed"))
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    monkeypatch.setenv("SEAL_AFTER_MONTHS", "0")
    dice, cluster = random.Random(seed), a_cluster()
    lab = a_tenant("lab", plan=a_plan(), accounts=[(cluster, "vision")])
    jobs = [
        a_job(job_id=str(1000 + job), user=f"person-{job % 9}", started=f"2024-03-{1 + job % 28:02d} 10:00",
              ended=f"2024-03-{1 + job % 28:02d} 11:{job % 60:02d}")
        for job in range(JOBS)
    ]  # fmt: skip
    ingest(cluster, *jobs, as_of="2024-05-01")
    with as_owner() as owner:
        owner.execute("UPDATE clusters_usagerecord SET last_seen = '2024-05-01'")
    close("2024-03", lab, on="2024-05-01", now="2024-05-01")
    sums, whole = prove(), counts()
    checks.prove(moment=at("2024-05-02"))
    killed = 0
    with Operator(database_url) as op:
        op.does("seal_month", "2024-03", "--yes")
        took = op.does(*DROP)
        assert counts() == (0, 0, 0)
        for _ in range(kills):
            command = LOAD if is_dropped() else DROP
            is_killed = op.is_killed_doing(*command, count=int, at=0, after=dice.uniform(0, took))
            killed += is_killed
            took = took if is_killed else took / 2  # the first time takes longest
            assert counts() == ((0, 0, 0) if is_dropped() else whole)
            assert prove_files().broken == []
            assert prove() == sums
        op.does(*DROP)
    assert killed >= kills // 3
    assert ingest(cluster, *jobs, as_of="2024-05-01").stored.unchanged == JOBS
    assert is_dropped()
    assert (
        ingest(cluster, a_job(job_id="1", started="2024-03-09 10:00", ended="2024-03-09 11:00")).stored.new
        == 1
    )
    assert counts() == (1, 1, 1)  # it stands beside the files
    assert is_dropped()
    prove()


def test_late_records_come_back_and_are_billed_once_however_often_their_import_is_killed(
    database_url: str, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEALED_MONTHS_DIRECTORY", str(tmp_path / "sealed"))
    monkeypatch.setenv("SEAL_AFTER_MONTHS", "0")
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    dice, cluster = random.Random(7), a_cluster()
    lab = a_tenant("lab", plan=a_plan(), accounts=[(cluster, "vision")])

    def accounting(minute: int, jobs: range) -> Path:
        """Jobs of an hour and some minutes, as sacct tells them."""
        file = tmp_path / "jobs.sacct"
        lines = [
            f"{job}|{job}|ben|vision|gpu|2024-03-{1 + job % 28:02d}T10:00:00|2024-03-{1 + job % 28:02d}T10:00:00"
            f"|2024-03-{1 + job % 28:02d}T11:{minute:02d}:00|{3600 + minute * 60}|00:00:00|COMPLETED"
            "|cpu=4,mem=8G,gres/gpu=1,gres/gpu:a100=1"
            for job in jobs
        ]
        head = "JobIDRaw|JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|Suspended|State|AllocTRES"
        file.write_text("\n".join([head, *lines]) + "\n")
        return file

    with Operator(database_url) as op:
        op.does("import_usage", cluster.name, accounting(0, range(1, 61)), "--as-of", "2024-05-01")
        with as_owner() as owner:
            owner.execute("UPDATE clusters_usagerecord SET last_seen = '2024-05-01'")
        close("2024-03", lab, on="2024-05-01", now="2024-05-01")
        op.does("seal_month", "2024-03", "--yes")
        op.does(*DROP)
        killed = 0
        for turn in range(6):
            before, file = (
                UsageRecord.objects.count(),
                accounting(turn + 1, range(turn * 10 + 1, turn * 10 + 11)),
            )
            killed += op.is_killed_doing(
                "import_usage", cluster.name, file, count=int, at=0, after=dice.uniform(0.3, 2)
            )
            assert UsageRecord.objects.count() in {before, before + 10}
            assert checks.prove().holds
            op.does("import_usage", cluster.name, file)
            assert UsageRecord.objects.count() == before + 10
    assert killed >= 2
    assert is_dropped()
    assert prove()["allocated"] == sum(10 * (3600 + 60 * (turn + 1)) for turn in range(6))
