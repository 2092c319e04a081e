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
            killed += op.is_killed_doing(*command, count=int, at=0, after=dice.uniform(0, took))
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
    assert counts() == tuple(count + 1 for count in whole)
