"""Kill -9 while a month is proved: no half of a proof is kept, and the next night names what it would have named."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.models import MonthProof, MonthSum, ProofMark
from billing.proof import checks
from tests.builders import LONG_AGO, a_cluster, a_plan, a_tenant
from tests.integration.operators import Operator, accounting
from tests.owner import as_owner

pytestmark = pytest.mark.usefixtures("transactional_db")

ROWS, ACCOUNTS, KILLS = 6_000, 4, 5
TASK = ("task", "billing.tasks.prove_a_month")


def some_labs() -> None:
    cluster = a_cluster()
    plan = a_plan(prices=[("gpu-hour", {}, "1.37", LONG_AGO)])
    for number in range(ACCOUNTS):
        a_tenant(f"lab-{number}", plan=plan, accounts=[(cluster, f"acc{number:02d}")])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_a_proof_that_is_killed_is_made_by_the_next_call(
    seed: int, database_url: str, tmp_path: Path
) -> None:
    """Five kills a seed: in the ten of them fifty."""
    some_labs()
    dice = random.Random(seed)
    with Operator(database_url) as op:
        op.does("import_usage", "gpu1", accounting(tmp_path / "march.sacct", rows=ROWS, accounts=ACCOUNTS))
        took = op.does(*TASK)
        expected = proofs()
        assert expected[0]["broken"] == []
        with as_owner() as owner:
            owner.execute("UPDATE clusters_usagerecord SET gpus = gpus + 1 WHERE job_id = '17'")

        killed = 0
        for _ in range(KILLS):
            MonthProof.objects.update(computed_at="2026-01-01T00:00:00Z", night=None)  # it is due again
            before = proofs()
            was_killed = op.is_killed_doing(*TASK, count=provers, at=1, after=dice.uniform(0, took / 2))
            killed += was_killed
            took = took if was_killed else took / 2  # it was done already: be quicker
            if was_killed and proofs() != before:
                assert names_job(proofs()[0]), "it was killed after it had committed"
        op.does(*TASK)

    assert killed, "no kill came in time"
    assert names_job(proofs()[0])
    assert [proof["records"] for proof in proofs()] == [proof["records"] for proof in expected]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_prove_that_is_killed_keeps_nothing_and_the_next_agrees_with_one_in_full(
    seed: int, database_url: str, tmp_path: Path
) -> None:
    """Five kills a seed, each after usage of the month was restated: what was proved before does not stand then."""
    some_labs()
    dice = random.Random(seed)
    with Operator(database_url) as op:
        op.does("import_usage", "gpu1", accounting(tmp_path / "march.sacct", rows=ROWS, accounts=ACCOUNTS))
        took = op.does("prove")
        killed = 0
        for turn in range(KILLS):
            with as_owner() as owner:
                owner.execute("UPDATE clusters_usagerecord SET revision = revision + 1 WHERE job_id = '17'")
            before = kept()
            was_killed = op.is_killed_doing("prove", count=provers, at=1, after=dice.uniform(0, took / 2))
            killed += was_killed
            took = took if was_killed else took / 2  # it was done already: be quicker
            if was_killed:
                assert kept() == before or not ProofMark.objects.exists(), "half of a proof was kept"
            if turn % 2:
                op.does("prove")
                assert not ProofMark.objects.exists()
        op.does("prove")

    assert killed, "no kill came in time"
    since, full = checks.prove(), checks.prove(full=True)
    assert (since.recomputed, full.holds) == ([], True)
    assert since == replace(full, recomputed=[])


def kept() -> list[Any]:
    """All that proofs keep."""
    return [list(model.objects.order_by("pk").values()) for model in (MonthProof, MonthSum, ProofMark)]


def names_job(proof: dict[str, Any]) -> bool:
    return any("job 17 of gpu1" in place for place in proof["broken"])


def proofs() -> list[Any]:
    return list(MonthProof.objects.order_by("month").values())


def provers() -> int:
    """How many transactions look at a month's records; their working tables are there."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
            " AND xact_start IS NOT NULL AND state <> 'idle'"
        )
        return int(cursor.fetchone()[0])
