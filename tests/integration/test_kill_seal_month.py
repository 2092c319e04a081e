"""Kill -9 while a month is sealed and unsealed: it is one or the other, its files are the same, every sum stays."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest

from billing.models import JobUser, SealedFile, SealedMonth
from billing.proof import checks
from billing.sealed_months import folder, seal
from billing.sealed_months.verify import prove_files
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.integration.operators import Operator
from tests.owner import as_owner
from tests.stories import close, prove

pytestmark = pytest.mark.usefixtures("transactional_db")

LABS, JOBS = 3, 400  # of each
MARCH = date(2024, 3, 1)
SEAL = ("seal_month", "2024-03", "--yes")
UNSEAL = ("unseal_month", "2024-03", "--yes")
TABLES = ("clusters_usagerecord", "billing_ratedjob", "billing_ratedusage")


def lose_rows() -> None:
    with as_owner() as owner:
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in TABLES:
            owner.execute(f"DROP TABLE IF EXISTS {table}_2024_03")


def digests() -> set[tuple[Any, ...]]:
    return set(SealedFile.objects.values_list("kind", "tenant", "rows", "sha256"))


@pytest.mark.parametrize(
    ("seed", "kills"), [(0, 6), *(pytest.param(seed, 10, marks=pytest.mark.long) for seed in range(1, 6))]
)
def test_a_month_is_sealed_or_not_however_often_it_is_killed_and_comes_back_whole(
    seed: int,
    kills: int,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SEALED_MONTHS_DIRECTORY", str(tmp_path))
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path
    monkeypatch.setenv("SEAL_AFTER_MONTHS", "0")
    dice, cluster = random.Random(seed), a_cluster()
    labs = [
        a_tenant(f"lab-{lab}", plan=a_plan(f"plan-{lab}"), accounts=[(cluster, f"lab-{lab}")])
        for lab in range(LABS)
    ]
    jobs = [
        a_job(job_id=f"{lab.slug}-{job}", account=account, user=f"person-{job % 9}", gpus=1 + job % 8,
              started=f"2024-03-{1 + job % 28:02d} 10:00", ended=f"2024-03-{1 + job % 28:02d} 11:{job % 60:02d}")
        for lab in labs for job in range(JOBS) for account in [lab.slug if job % 50 else "nobody"]
    ]  # fmt: skip
    ingest(cluster, *jobs, as_of="2024-05-01")
    with as_owner() as owner:
        owner.execute("UPDATE clusters_usagerecord SET last_seen = '2024-05-01'")
    close("2024-03", on="2024-05-01", now="2024-05-01")
    sums = prove()
    checks.prove(moment=at("2024-05-02"))
    killed = 0
    with Operator(database_url) as op:
        took = op.does(*SEAL)
        sealed = digests()
        for turn in range(kills):
            command = UNSEAL if SealedMonth.objects.exists() else SEAL
            lost = command == UNSEAL and turn % 3 == 0
            if lost:
                lose_rows()
            is_killed = op.is_killed_doing(*command, count=int, at=0, after=dice.uniform(0, took))
            killed += is_killed
            took = took if is_killed else took / 2  # the first time takes longest
            if SealedMonth.objects.exists():
                assert prove_files().broken == []
                assert digests() == sealed
            else:
                assert prove() == sums
            if lost and SealedMonth.objects.exists():
                op.does(*UNSEAL)
                assert prove() == sums
        if not SealedMonth.objects.exists():
            op.does(*SEAL)
        assert digests() == sealed
        assert prove_files().broken == []
        lose_rows()
        op.does(*UNSEAL)
    assert killed >= kills // 3
    assert prove() == sums
    assert list(tmp_path.iterdir()) == []


def test_nobody_waits_for_numbers_of_users_while_a_month_is_sealed(
    database_url: str, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path
    cluster = a_cluster()
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(
        cluster,
        a_job(user="ben", started="2024-03-01 10:00", ended="2024-03-01 11:00"),
        as_of="2024-05-01",
    )
    close("2024-03", on="2024-05-01", now="2024-05-01")
    publish = folder.publish

    def while_another_numbers(*values: Any) -> None:
        with psycopg.connect(database_url, options="-c lock_timeout=2s") as other:
            other.execute(
                "INSERT INTO billing_jobuser (tenant_id, name) VALUES (%s, 'ben') ON CONFLICT DO NOTHING",
                [lab.pk],
            )
        publish(*values)

    monkeypatch.setattr(folder, "publish", while_another_numbers)
    seal.seal_month(month=MARCH, moment=at("2031-06-01"), quiet_months=0)
    assert JobUser.objects.get(tenant=lab).name == "ben"
