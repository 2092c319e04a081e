"""Sealed files have nothing of a job where its other columns say it; older ones have all, and are read alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from billing.sealed_months import drop, rows_sql, unseal
from clusters.models import Cluster
from tests.builders import at, ingest
from tests.owner import as_owner
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import close, prove

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


@pytest.fixture
def books() -> None:
    enter_march()
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")


def filed_jobs(directory: Path) -> dict[str, tuple[int | None, int | None]]:
    """By number, when each is shown and its GPU units, as its file has them."""
    sealed()
    files = [str(path) for path in directory.rglob("jobs.parquet")]
    found = duckdb.execute("SELECT job_id, shown_at, gpu_units FROM read_parquet($1)", [files])
    return {job: (shown_at, units) for job, shown_at, units in found.fetchall()}


def test_of_a_job_that_one_tenant_had_whole_a_file_has_neither_when_it_is_shown_nor_its_units(
    books: None, directory: Path
) -> None:
    assert filed_jobs(directory) == {"1": (None, None), "2": (None, None), "4": (None, None)}


@pytest.mark.parametrize("is_dropped", [False, True])
def test_older_files_have_both_and_are_read_alike(
    books: None, directory: Path, monkeypatch: pytest.MonkeyPatch, is_dropped: bool
) -> None:
    sums, before = prove(), rows()
    with monkeypatch.context() as patched:
        patched.setitem(rows_sql._OUT, rows_sql.IMPLIED, '{t}."{c}"')
        assert filed_jobs(directory)["1"] == (int(at("2026-03-02 10:00").timestamp()), 4 * 9_000)
    if is_dropped:
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
        assert prove() == sums
        drop.load_back(month=MARCH)
    else:
        with as_owner() as owner:
            owner.execute("SET CONSTRAINTS ALL IMMEDIATE; DROP TABLE billing_ratedjob_2026_03")
        unseal.unseal_month(month=MARCH)
    assert rows() == before
    assert prove() == sums
