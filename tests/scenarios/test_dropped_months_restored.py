"""A backup from while a month was dropped finds its files again, and its sums close."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db import transaction

from billing.models import RatedJob
from billing.proof import checks
from billing.sealed_months import drop, unseal
from clusters.models import Cluster
from portal.ops import backups
from tests.builders import ingest
from tests.owner import as_owner
from tests.scenarios.real import run
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import close

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


@pytest.fixture
def books() -> dict[str, list[Any]]:
    """The rows of March, which is dropped then."""
    enter_march()
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    before = rows()
    sealed()
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    return before


@pytest.mark.parametrize("loaded_first", [False, True])
def test_unsealed_and_then_restored_from_a_backup_of_before_it_has_its_rows(
    books: dict[str, list[Any]], directory: Path, loaded_first: bool
) -> None:
    with transaction.atomic():
        backup = transaction.savepoint()
        if loaded_first:
            drop.load_back(month=MARCH)
        unseal.unseal_month(month=MARCH)
        assert RatedJob.objects.exists()
        transaction.savepoint_rollback(backup)  # the database is as it was in the night before
    assert not RatedJob.objects.exists()
    (aside,) = directory.iterdir()
    assert aside.name == "2026-03.set-aside-1"
    aside.rename(directory / "2026-03")
    drop.load_back(month=MARCH)
    assert rows() == books


def test_what_a_killed_unsealing_left_of_a_dropped_month_is_set_aside_and_not_deleted(
    books: dict[str, list[Any]], directory: Path
) -> None:
    unseal.unseal_month(month=MARCH)
    (directory / "2026-03.set-aside-1").rename(directory / "2026-03")
    assert run("unseal_month", "2026-03", "--yes")["set_aside"] == ["2026-03.set-aside-1"]


def test_every_sum_closes_over_tables_that_a_restore_has_made_anew(books: dict[str, list[Any]]) -> None:
    low = ((2026 - 1970) * 12 + 2) << 40
    with as_owner() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            "ALTER TABLE billing_ratedjob DETACH PARTITION billing_ratedjob_2026_03;"
            "CREATE TABLE anew (LIKE billing_ratedjob_2026_03 INCLUDING ALL);"
            "DROP TABLE billing_ratedjob_2026_03;"
            "ALTER TABLE anew RENAME TO billing_ratedjob_2026_03;"
            "ALTER TABLE billing_ratedjob ATTACH PARTITION billing_ratedjob_2026_03"
            f" FOR VALUES FROM ({low}) TO ({low + (1 << 40)})"
        )
    proof = checks.prove(full=True)
    assert proof.holds, [check for check in proof.checks if check.broken]


def test_a_backup_says_which_directories_belong_to_it(
    books: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "dump", lambda url, file: 7)
    assert run("backup_database", "clustertab.dump")["months_in_files"] == ["2026-03"]
    drop.load_back(month=MARCH)
    assert run("backup_database", "clustertab.dump")["months_in_files"] == []


def test_the_first_month_is_dropped_once_op_says_that_no_older_process_runs(directory: Path) -> None:
    enter_march()
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    sealed()
    with pytest.raises(
        CommandError, match=r"Processes of release 1\.0\.0 that still run know no dropped months"
    ):
        run("drop_month", "2026-03", "--yes")
    assert RatedJob.objects.exists()
    assert run("drop_month", "2026-03", "--all-processes-replaced", "--yes")["dropped_at"]
    run("drop_month", "2026-03", "--load", "--yes")
    assert run("drop_month", "2026-03", "--yes")["dropped_at"]  # none of those starts any more
