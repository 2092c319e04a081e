"""Kill -9 of the worker that seals, drops, loads and unseals a month on request: the next worker ends each request."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from billing.models import RatedJob, RatedUsage, SealedFile, SealedMonth, SealKind, SealRun
from billing.proof import checks
from billing.sealed_months import seal_runs
from billing.sealed_months.verify import prove_files
from clusters.models import UsageRecord
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.integration.operators import Operator
from tests.owner import as_owner
from tests.stories import close, prove

pytestmark = pytest.mark.usefixtures("transactional_db")

JOBS = 600
MARCH = date(2024, 3, 1)
NOW = at("2024-05-02")
TURNS = (SealKind.SEAL, SealKind.DROP, SealKind.LOAD, SealKind.DROP, SealKind.UNSEAL)
AFTER = {
    SealKind.SEAL: (True, False),
    SealKind.DROP: (True, True),
    SealKind.LOAD: (True, False),
    SealKind.UNSEAL: (False, False),
}
"""Whether the month is sealed, and whether it is dropped, once a request of that kind has ended."""
WORKER = ("task", "billing.sealed_months.tasks.perform_seal_run")


def counts() -> tuple[int, int, int]:
    return UsageRecord.objects.count(), RatedJob.objects.count(), RatedUsage.objects.count()


def state() -> tuple[bool, bool]:
    row = SealedMonth.objects.filter(month=MARCH).first()
    return row is not None, row is not None and row.dropped_at is not None


def digests() -> set[tuple[Any, ...]]:
    return set(SealedFile.objects.values_list("kind", "tenant", "rows", "sha256"))


@pytest.mark.parametrize(
    ("seed", "rounds"), [(0, 1), *(pytest.param(seed, 3, marks=pytest.mark.long) for seed in range(1, 4))]
)
def test_a_request_is_ended_by_the_next_worker_with_the_same_sums_and_files(
    seed: int, rounds: int, database_url: str, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEALED_MONTHS_DIRECTORY", str(tmp_path / "sealed"))
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    monkeypatch.setenv("SEAL_AFTER_MONTHS", "0")
    settings.CLUSTERTAB_SEAL_AFTER_MONTHS = 0
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
    checks.prove(moment=NOW)
    killed = 0
    sealed: set[tuple[Any, ...]] = set()
    took: dict[SealKind, float] = {}
    with Operator(database_url) as op:
        for turn in range(rounds + 1):
            for kind in TURNS:
                before = state()
                run = seal_runs.request_run(
                    month=MARCH, kind=kind, by="op@lab.example", moment=NOW, all_processes_replaced=True
                )
                if turn:  # in the first round we see how long each takes
                    killed += op.is_killed_doing(*WORKER, count=int, at=0, after=dice.uniform(0, took[kind]))
                    assert state() in {before, AFTER[kind]}
                    assert counts() == ((0, 0, 0) if state()[1] else whole)
                    assert prove() == sums
                    op.does(*WORKER)
                else:
                    took[kind] = op.does(*WORKER)
                run.refresh_from_db()
                assert (run.error, run.ended_at is not None) == ("", True), kind
                assert state() == AFTER[kind]
                assert counts() == ((0, 0, 0) if state()[1] else whole)
                assert prove_files().broken == []
                if state()[0]:
                    sealed = sealed or digests()
                    assert digests() == sealed
    assert killed >= rounds * len(TURNS) // 3
    assert prove() == sums
    assert not SealRun.objects.unfinished().exists()
    assert not [path for path in (tmp_path / "sealed").iterdir() if path.name.startswith(".")]
